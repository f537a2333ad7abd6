"""The tasks that a cost model learns from (benchmarks.lessons), and those that it is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

_WINDOWS = (
    (96, 56, 384, 1, 1), (48, 56, 192, 1, 1), (192, 28, 768, 1, 1), (384, 14, 1536, 1, 1), (768, 7, 3072, 1, 1),
    (384, 56, 96, 1, 1), (768, 28, 192, 1, 1), (80, 28, 240, 1, 1), (112, 14, 672, 1, 1), (256, 20, 512, 1, 1),
    (128, 40, 128, 3, 1), (192, 14, 192, 3, 1), (320, 7, 320, 3, 1), (48, 56, 48, 3, 1), (64, 80, 128, 3, 2),
    (256, 40, 512, 1, 2), (24, 112, 64, 1, 1), (768, 14, 1536, 1, 2),
)  # fmt: skip
"""Channels, height and width, filters, their size, stride."""
_SMALL_WINDOWS = ((112, 7, 672, 1, 1), (192, 7, 1152, 1, 1), (256, 7, 1024, 1, 1), (128, 14, 512, 1, 1))
_HALF_WINDOWS = (
    (192, 14, 192, 3, 1), (384, 7, 384, 3, 1), (96, 28, 96, 3, 1), (48, 56, 48, 3, 1), (384, 14, 384, 3, 2),
    (448, 14, 256, 1, 1), (1024, 7, 384, 1, 1), (384, 28, 96, 1, 1), (320, 20, 512, 3, 1),
)  # fmt: skip
_HALF_DEPTHWISE = (
    (64, 112, 3, 1), (192, 56, 3, 1), (96, 56, 3, 1), (128, 56, 3, 2), (288, 28, 5, 1), (240, 28, 3, 2),
    (176, 28, 3, 1), (480, 14, 3, 1), (672, 14, 5, 1), (720, 7, 3, 1),
)  # fmt: skip
"""Channels, height and width, filters' size, stride."""
_HALF_POINTWISE = ((32, 56, 192), (240, 28, 40), (80, 14, 480), (48, 112, 24))
_ADDED = ((96, 28, 384), (192, 14, 768), (384, 7, 1536), (48, 56, 192))
_PRODUCTS = (
    (128, 1024, 1024), (64, 768, 2048), (32, 512, 2048), (196, 256, 768), (384, 768, 768), (16, 1024, 1024),
    (77, 768, 768),
)  # fmt: skip
_HALF_PRODUCTS = ((128, 1024, 1024), (196, 384, 1536), (64, 2048, 512), (100, 640, 640))
_HEADS = (
    (8, 256, 64, 256), (16, 64, 64, 64), (12, 384, 64, 384), (12, 77, 64, 77), (16, 197, 64, 197), (6, 49, 32, 49),
    (8, 197, 197, 64), (12, 100, 100, 32), (4, 197, 32, 197),
)  # fmt: skip
_BYTES_AGAIN = "multiplier=const:scalar zero_point=const:scalar:u8"


def _window(c: int, h: int, k: int, r: int, stride: int, x: str, w: str) -> str:
    return f"conv2d data=1,{c},{h},{h}:{x} weight={k},{c},{r},{r}:{w} pad={r // 2} stride={stride}"


def _to_bytes(k: int) -> str:
    return f" + bias + requantize multiplier=const:1,{k},1,1:f32 zero_point=const:scalar:u8"


def _half_window(c: int, h: int, k: int, r: int, stride: int) -> str:
    """As a model with 16-bit factors has it."""
    return (
        f"cast data=1,{c},{h},{h}:bf16 to=f32 + cast data=const:{k},{c},{r},{r}:bf16 to=f32 + "
        f"conv2d data=step1 weight=step2 pad={r // 2} stride={stride} + add b=const:1,{k},1,1"
    )


def _half_depthwise(c: int, h: int, r: int, stride: int) -> str:
    """As a model whose dense windows have 16-bit factors has it: images of 16 bits, weights and sums of 32."""
    return (
        f"cast data=1,{c},{h},{h}:bf16 to=f32 + conv2d weight={c},1,{r},{r} groups={c} pad={r // 2} stride={stride} + "
        f"add b=const:1,{c},1,1 + clip max=6.0 min=0.0 + cast to=bf16"
    )


def _half_product(m: int, k: int, n: int) -> str:
    given = f"cast data={m},{k}:bf16 to=f32 + cast data=const:{k},{n}:bf16 to=f32"
    return f"{given} + matmul a=step1 b=step2 + add b=const:{n}"


def _tiles() -> Iterator[str]:
    """What instructions of matrix registers multiply, in the forms that models have."""
    for window in (*_WINDOWS, *_SMALL_WINDOWS):
        yield _window(*window, "u8", "i8") + _to_bytes(window[2])
    for window in _WINDOWS:
        yield _window(*window, "bf16", "bf16")
    for window in _HALF_WINDOWS:
        yield _half_window(*window) + " + relu + cast to=bf16"
    yield _half_window(384, 28, 768, 1, 2)
    yield _half_window(24, 56, 96, 1, 1) + " + clip max=6.0 min=0.0"
    for c, h, k in _ADDED:
        yield _half_window(c, h, k, 1, 1)
        yield (
            f"{_half_window(c, h, k, 1, 1)} + cast data=1,{k},{h},{h}:bf16 to=f32 + add a=step4 b=step5 + relu + "
            f"cast to=bf16"
        )
    for c, h, k in (_ADDED[0], _ADDED[1], _ADDED[3]):
        yield (
            f"{_window(c, h, k, 1, 1, 'u8', 'i8')}{_to_bytes(k)} + dequantize scale=const:scalar:f32 zero_point=in4 + "
            f"dequantize data=1,{k},{h},{h}:u8 scale=const:scalar zero_point=const:scalar:u8 + add a=step4 b=step5 + "
            f"requantize {_BYTES_AGAIN}"
        )
    for m, k, n in _PRODUCTS:
        yield f"matmul a=var:{m},{k}:bf16 b=const:{k},{n}:bf16"
        yield (
            f"matmul a=var:{m},{k}:u8 b=const:{k},{n}:i8 + add b=const:1,{n} + "
            f"requantize multiplier=const:1,{n}:f32 zero_point=const:scalar:u8"
        )
    for m, k, n in _HALF_PRODUCTS:
        yield _half_product(m, k, n)
    yield _half_product(128, 512, 2048) + " + gelu + cast to=bf16"
    for heads, m, k, n in _HEADS:
        yield f"matmul a=var:{heads},{m},{k}:u8 b=var:{heads},{k},{n}:i8"
        yield f"matmul a=var:{heads},{m},{k}:bf16 b=var:{heads},{k},{n}:bf16"


def _pieces() -> Iterator[str]:
    """Products of f32 whose weights are constant, which are multiplied as sums of bf16."""
    for c, h, k, r, stride in dict.fromkeys((*_WINDOWS, *_SMALL_WINDOWS, *_HALF_WINDOWS)):
        if (c, r, stride) == (384, 3, 2):
            continue  # `layer` has it
        yield f"conv2d data=1,{c},{h},{h} weight={k},{c},{r},{r} pad={r // 2} stride={stride} + bias + relu"
    for c, h, k in _ADDED:
        yield f"conv2d data=1,{c},{h},{h} weight={k},{c},1,1 + bias + residual + relu"
    for m, k, n in dict.fromkeys((*_PRODUCTS, *_HALF_PRODUCTS, (128, 2048, 512), (197, 1024, 4096), (32, 1024, 4096))):
        yield f"matmul a=var:{m},{k} b=const:{k},{n} + bias"


TASKS: Mapping[str, Sequence[str]] = {
    "product": (
        "matmul a=var:128,768 b=const:768,3072",
        "matmul a=var:128,3072 b=const:3072,768",
        "matmul a=var:197,768 b=const:768,768 add b=const:768",
        "matmul a=var:49,1024 b=const:1024,4096",
        "matmul a=var:512,512 b=var:512,512",
        "matmul a=var:1000,64 b=const:64,64",
        "matmul a=var:37,300 b=const:300,211",
        "matmul a=var:16,1024 b=const:1024,1024",
    ),
    "vector": (
        "matmul a=var:1,4096 b=const:4096,4096",
        "matmul a=var:1,2048 b=const:2048,1000",
        "matmul a=var:4,1024 b=const:1024,4096",
    ),
    "products": (
        "matmul a=var:12,128,64 b=var:12,64,128",
        "matmul a=var:12,197,197 b=var:12,197,64",
        "matmul a=var:64,49,32 b=var:64,32,49",
        "matmul a=var:8,64,256 b=var:8,256,64",
    ),
    "einsum": (
        "einsum data=var:1,197,12,64 data=var:1,197,12,64 equation=bqhd,bkhd->bhqk",
        "einsum data=var:48,32,24,32 data=var:32,32,40 equation=abcd,dbe->ace",
        "einsum data=var:1,64,28,28 data=var:1,64,28,28 equation=bchw,bcxy->bhwxy",
        "einsum data=var:8,16,128 data=var:8,128,96 equation=bij,bjk->bik",
    ),
    "convolution": (
        "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + relu",
        "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1 + relu",
        "conv2d data=1,512,7,7 weight=512,512,3,3 pad=1 + relu",
        "conv2d data=1,128,56,56 weight=128,128,3,3 pad=1 stride=2",
        "conv2d data=1,3,224,224 weight=64,3,7,7 pad=3 stride=2",
        "conv2d data=1,3,224,224 weight=32,3,3,3 pad=1 stride=2",
        "conv2d data=1,64,28,28 weight=96,64,5,5 pad=2",
        "conv3d data=1,32,8,28,28 weight=64,32,3,3,3 pad=1,1,1,1,1,1",
    ),
    "pointwise": (
        "conv2d data=1,64,56,56 weight=256,64,1,1",
        "conv2d data=1,1024,14,14 weight=256,1024,1,1 + relu",
        "conv2d data=1,32,112,112 weight=16,32,1,1",
        "conv2d data=1,512,28,28 weight=1024,512,1,1 stride=2",
        "conv2d data=1,320,7,7 weight=1280,320,1,1",
    ),
    "depthwise": (
        "conv2d data=1,32,112,112 weight=32,1,3,3 pad=1 groups=32",
        "conv2d data=1,144,56,56 weight=144,1,3,3 pad=1 stride=2 groups=144",
        "conv2d data=1,480,14,14 weight=480,1,5,5 pad=2 groups=480",
        "conv2d data=1,960,7,7 weight=960,1,3,3 pad=1 groups=960",
    ),
    "grouped": (
        "conv2d data=1,128,56,56 weight=128,4,3,3 pad=1 groups=32",
        "conv2d data=1,512,14,14 weight=512,16,3,3 pad=1 groups=32",
        "conv3d data=1,64,8,28,28 weight=64,32,3,3,3 groups=2 pad=1,1,1,1,1,1",
    ),
    "bytes": (
        "matmul a=var:128,768:u8 b=const:768,768:i8",
        "matmul a=var:128,3072:u8 b=const:3072,768:i8",
        "matmul a=var:49,512:i8 b=const:512,2048:i8",
        "conv2d data=1,64,56,56:u8 weight=64,64,3,3:i8 pad=1",
        "conv2d data=1,256,14,14:u8 weight=1024,256,1,1:i8",
        "conv2d data=1,3,224,224:u8 weight=64,3,7,7:i8 pad=3 stride=2",
        "conv2d data=1,96,56,56:u8 weight=96,1,3,3:i8 pad=1 groups=96",
        "conv2d data=1,512,7,7:u8 weight=512,512,3,3:i8 pad=1",
        "conv2d data=1,192,28,28:u8 weight=384,192,1,1:i8",
        "conv2d data=1,640,14,14:u8 weight=160,640,1,1:i8",
        "conv2d data=1,96,56,56:u8 weight=384,96,1,1:i8 stride=2",
        "conv2d data=1,320,10,10:u8 weight=960,320,1,1:i8",
        "conv2d data=1,160,20,20:u8 weight=160,160,3,3:i8 pad=1",
        "conv2d data=1,192,14,14:u8 weight=384,192,3,3:i8 pad=1 stride=2",
        "conv2d data=1,384,10,10:u8 weight=384,384,3,3:i8 pad=1",
        "conv2d data=1,80,40,40:u8 weight=80,80,3,3:i8 pad=1",
        "conv2d data=1,1280,7,7:u8 weight=320,1280,1,1:i8",
        "conv2d data=1,384,7,7:u8 weight=1536,384,1,1:i8",
        "conv2d data=1,768,14,14:u8 weight=1536,768,1,1:i8 stride=2",
        "conv2d data=1,48,112,112:u8 weight=24,48,1,1:i8",
        "conv2d data=1,720,14,14:u8 weight=240,720,1,1:i8",
        "matmul a=var:64,1024:u8 b=const:1024,4096:i8",
        "matmul a=var:197,512:u8 b=const:512,1536:i8",
    ),
    "fused": (
        *(
            f"matmul a=var:{m},{k}:u8 b=const:{k},{n}:i8 + add b=const:1,{n} + requantize multiplier=const:1,{n}:f32 "
            f"zero_point=const:scalar:u8"
            for m, k, n in (
                (128, 512, 512),
                (196, 384, 1152),
                (64, 1024, 1024),
                (256, 640, 640),
                (197, 1024, 1024),
                (100, 768, 2304),
                (128, 1024, 4096),
                (384, 512, 768),
            )
        ),
        *(
            f"conv2d data=1,{c},{h},{h}:u8 weight={k},{c},{r},{r}:i8 pad={r // 2} stride={stride} + bias + requantize "
            f"multiplier=const:1,{k},1,1:f32 zero_point=const:scalar:u8"
            for c, h, k, r, stride in (
                (192, 28, 64, 1, 1),
                (320, 14, 1280, 1, 1),
                (448, 14, 448, 3, 1),
                (768, 7, 768, 3, 1),
                (96, 56, 96, 3, 1),
                (384, 28, 384, 1, 1),
                (1536, 7, 512, 1, 1),
                (512, 16, 1024, 1, 2),
                (240, 20, 40, 1, 1),
                (160, 28, 320, 3, 2),
            )
        ),
        "matmul a=var:196,512 b=const:512,2048 + bias + gelu",
        "matmul a=var:196,1024 b=const:1024,1024 + bias",
        "matmul a=var:100,768 b=const:768,2304 + bias",
        "matmul a=var:64,1024 b=const:1024,4096 + bias + gelu",
        "matmul a=var:256,640 b=const:640,640 + bias",
        "conv2d data=1,384,14,14 weight=384,384,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,768,14,14 weight=1536,768,1,1 stride=2 + bias",
        "conv2d data=1,768,7,7 weight=384,768,1,1 + bias + relu",
    ),
    "bf16": (
        "matmul a=var:128,768:bf16 b=const:768,768:bf16",
        "matmul a=var:197,768:bf16 b=const:768,3072:bf16",
        "conv2d data=1,128,28,28:bf16 weight=128,128,3,3:bf16 pad=1",
        "conv2d data=1,256,28,28:bf16 weight=512,256,1,1:bf16",
        *(_half_depthwise(*window) for window in _HALF_DEPTHWISE),
        *(_half_window(*window, 1, 1) + " + cast to=bf16" for window in _HALF_POINTWISE),
        *(_half_product(*sizes) + " + cast to=bf16" for sizes in _HALF_PRODUCTS),
    ),
    "tiles": tuple(_tiles()),
    "pieces": tuple(_pieces()),
    "layer": (
        "conv2d data=1,64,112,112 weight=128,64,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,96,56,56 weight=192,96,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,192,28,28 weight=384,192,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,320,28,28 weight=320,320,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,640,14,14 weight=640,640,3,3 pad=1 stride=2 + bias + relu",
        "conv2d data=1,192,56,56 weight=384,192,1,1 stride=2 + bias + residual + relu",
        "conv2d data=1,384,28,28 weight=768,384,1,1 stride=2 + bias + residual + relu",
        "conv2d data=1,1280,14,14 weight=1792,1280,1,1 stride=2 + bias + residual + relu",
        "conv2d data=1,96,56,56 weight=384,96,1,1 + bias + residual + relu",
        "conv2d data=1,192,28,28 weight=768,192,1,1 + bias + residual + relu",
        "conv2d data=1,384,14,14 weight=1536,384,1,1 + bias + residual + relu",
        "conv2d data=1,640,7,7 weight=2560,640,1,1 + bias + residual + relu",
        "conv2d data=1,384,56,56 weight=96,384,1,1 + bias + relu",
        "conv2d data=1,768,28,28 weight=192,768,1,1 + bias + relu",
        "conv2d data=1,1536,14,14 weight=384,1536,1,1 + bias + relu",
        "conv2d data=1,1536,14,14 weight=768,1536,1,1 + bias + relu",
        "conv2d data=1,2560,7,7 weight=640,2560,1,1 + bias + relu",
    ),
    "f16": (
        "conv2d data=1,64,56,56:f16 weight=64,64,3,3:f16 pad=1",
        "matmul a=var:128,768:f16 b=const:768,768:f16",
        "matmul a=var:32,1024:f16 b=const:1024,512:f16",
        "conv2d data=1,256,14,14:f16 weight=256,256,1,1:f16",
    ),
    "map": (
        "transpose data=1024,1024 perm=1,0",
        "transpose data=1,768,197 perm=0,2,1",
        "transpose data=1,56,56,64 perm=0,3,1,2",
        "transpose data=16,197,12,64 perm=0,2,1,3",
        "transpose data=3,1000,700 perm=2,0,1",
        "max_pool data=1,64,112,112 kernel=3,3 stride=2,2 pad=1,1,1,1",
        "avg_pool data=1,192,28,28 kernel=3,3 stride=1,1 pad=1,1,1,1",
        "max_pool data=1,16,32,56,56 kernel=2,2,2 stride=2,2,2",
        "add a=1,64,56,56 b=1,64,1,1 + relu",
        "reduce_sum data=64,1024,32 axes=1",
        "transpose data=1,128,12,64 perm=0,2,3,1",
        "transpose data=512,2048 perm=1,0",
        "transpose data=8,96,96,3 perm=0,3,1,2",
        "max_pool data=1,192,56,56 kernel=2,2 stride=2,2",
        "max_pool data=1,256,20,20 kernel=5,5 stride=1,1 pad=2,2,2,2",
        "avg_pool data=1,128,56,56 kernel=2,2 stride=2,2",
        "mul a=1,96,112,112 b=1,96,1,1",
        "reduce_mean data=1,256,14,14,4 axes=2",
    ),
    "rows": (
        "softmax data=12,128,128",
        "softmax data=1024,1000",
        "layer_norm data=197,768 scale=768 bias=768",
        "mul a=1024,768 b=1024,768 + reduce_sum axes=1 + sqrt",
        "attention q=1,12,128,64 k=1,12,128,64 v=1,12,128,64 q_heads=12 kv_heads=12",
    ),
}
"""Kinds of tasks that models of the zoo have, by what they have in common."""

UNSEEN: Mapping[str, Sequence[str]] = {
    "product": (
        "matmul a=var:64,1280 b=const:1280,320",
        "matmul a=var:196,384 b=const:384,1536",
        "matmul a=var:256,1024 b=const:1024,1024",
        "matmul a=var:31,500 b=const:500,77",
    ),
    "vector": ("matmul a=var:1,1024 b=const:1024,4096", "matmul a=var:2,3072 b=const:3072,768"),
    "products": ("matmul a=var:16,64,64 b=var:16,64,64", "matmul a=var:3,196,128 b=var:3,128,196"),
    "einsum": (
        "einsum data=var:1,128,8,64 data=var:1,128,8,64 equation=bqhd,bkhd->bhqk",
        "einsum data=var:20,30,40 data=var:40,30,50 equation=abc,cbd->ad",
    ),
    "convolution": (
        "conv2d data=1,128,28,28 weight=128,128,3,3 pad=1 + relu",
        "conv2d data=1,192,35,35 weight=64,192,5,5 pad=2",
        "conv2d data=1,256,28,28 weight=512,256,3,3 pad=1 stride=2",
        "conv2d data=1,3,256,256 weight=24,3,3,3 pad=1 stride=2",
    ),
    "pointwise": (
        "conv2d data=1,96,56,56 weight=24,96,1,1",
        "conv2d data=1,512,7,7 weight=2048,512,1,1 + relu",
        "conv2d data=1,192,28,28 weight=64,192,1,1",
    ),
    "depthwise": (
        "conv2d data=1,96,112,112 weight=96,1,3,3 pad=1 stride=2 groups=96",
        "conv2d data=1,240,28,28 weight=240,1,5,5 pad=2 groups=240",
        "conv2d data=1,672,14,14 weight=672,1,5,5 pad=2 groups=672",
    ),
    "grouped": ("conv2d data=1,256,28,28 weight=256,8,3,3 pad=1 groups=32",),
    "bytes": (
        "matmul a=var:197,768:u8 b=const:768,768:i8",
        "conv2d data=1,128,28,28:u8 weight=128,128,3,3:i8 pad=1",
        "conv2d data=1,96,28,28:u8 weight=192,96,1,1:i8",
        "conv2d data=1,144,28,28:u8 weight=144,1,3,3:i8 pad=1 groups=144",
    ),
    "bf16": (
        "matmul a=var:64,1024:bf16 b=const:1024,256:bf16",
        "conv2d data=1,64,56,56:bf16 weight=64,64,3,3:bf16 pad=1",
    ),
    "f16": ("matmul a=var:49,512:f16 b=const:512,512:f16",),
    "map": (
        "transpose data=1,96,3136 perm=0,2,1",
        "transpose data=12,128,64 perm=1,0,2",
        "max_pool data=1,128,56,56 kernel=3,3 stride=2,2 pad=1,1,1,1",
        "add a=8,197,768 b=768",
    ),
    "rows": ("softmax data=64,49,49", "layer_norm data=128,768 scale=768 bias=768"),
}
"""Others, by which a model is judged, and which it never learns from."""
