"""Small networks that people write by hand over space: images, points, graphs, boxes, and single operators."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.breadth.handmade import Handmade, Inputs

PLANES = Handmade()
architectures = PLANES.architectures


@PLANES.net(lambda: {"image": torch.randn(1, 1, 32, 96)}, {"image": {3: "width"}})
class Crnn(nn.Module):
    """Text recognition: convolutions, then a recurrence along the width."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((4, 2)), nn.Conv2d(32, 48, (4, 1)), nn.ReLU(),
        )  # fmt: skip
        self.rnn, self.head = nn.LSTM(48, 32, bidirectional=True), nn.Linear(64, 37)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.rnn(self.features(image).squeeze(2).permute(2, 0, 1))[0])


@PLANES.net(lambda: {"points": torch.randn(1, 3, 256)}, {"points": {0: "batch", 2: "points"}})
class PointNet(nn.Module):
    """With the small network that turns the points first."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 64, 1), nn.ReLU())
        self.angles = nn.Linear(64, 9)
        self.body = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1))
        self.head = nn.Linear(128, 10)

    def forward(self, points: Tensor) -> Tensor:
        matrix = self.angles(self.turn(points).amax(2)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.body(matrix @ points).amax(2))


@PLANES.net(lambda: {"points": torch.randn(1, 128, 3)}, {"points": {0: "batch"}})
class EdgeConv(nn.Module):
    """The nearest neighbours of each point, and a network on the edges to them."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32))

    def forward(self, points: Tensor) -> Tensor:
        near = torch.cdist(points, points).topk(8, dim=-1, largest=False).indices
        flat = near.flatten(1).unsqueeze(-1).expand(-1, -1, 3)
        others = torch.gather(points, 1, flat).unflatten(1, (128, 8))
        here = points.unsqueeze(2).expand_as(others)
        return self.edges(torch.cat([here, others - here], -1)).amax(2)


def _graph() -> Inputs:
    return {"nodes": torch.randn(64, 16), "edges": torch.randint(0, 64, (2, 256))}


@PLANES.net(_graph, {"edges": {1: "edges"}})
class GraphConvolution(nn.Module):
    """Messages summed by scatter, divided by the degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def spread(self, x: Tensor, edges: Tensor) -> Tensor:
        total = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        degree = torch.zeros(x.shape[0]).index_add(0, edges[1], torch.ones(edges.shape[1]))
        return total / degree.clamp(min=1).unsqueeze(1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.spread(F.relu(self.first(self.spread(nodes, edges))), edges))


@PLANES.net(_graph, {"edges": {1: "edges"}})
class GraphAttention(nn.Module):
    """Softmax over the edges into each node, by scattered maxima and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.score = nn.Linear(16, 32), nn.Linear(64, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = self.lift(nodes)
        source, target = x[edges[0]], x[edges[1]]
        score = F.leaky_relu(self.score(torch.cat([source, target], 1)), 0.2).squeeze(1)
        most = torch.full((64,), -1e9).scatter_reduce(0, edges[1], score, "amax")
        weight = (score - most[edges[1]]).exp()
        total = torch.zeros(64).scatter_add(0, edges[1], weight)
        message = source * (weight / total[edges[1]]).unsqueeze(1)
        return torch.zeros_like(x).scatter_add(0, edges[1].unsqueeze(1).expand_as(message), message)


@PLANES.net(lambda: {"image": torch.randn(1, 3, 48, 48)}, {"image": {0: "batch"}})
class SpatialTransformer(nn.Module):
    """An affine warp that the network itself foresees."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.angles = nn.Linear(128, 6)

    def forward(self, image: Tensor) -> Tensor:
        theta = self.angles(self.where(image)).view(-1, 2, 3)
        return F.grid_sample(image, F.affine_grid(theta, [1, 3, 48, 48], False), align_corners=False)


@PLANES.net(lambda: {"image": torch.randn(1, 16, 32, 32)})
class Warp(nn.Module):
    """Features moved along a flow, as in optical flow and frame interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
        grid = torch.stack([x, y], -1) + self.flow(image).permute(0, 2, 3, 1)
        return F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=True)


@PLANES.net(lambda: {"boxes": torch.rand(200, 4), "scores": torch.rand(200)})
class Suppression(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        import torchvision

        corner, size = boxes[:, :2], boxes[:, 2:] * 0.3
        return torchvision.ops.nms(torch.cat([corner, corner + size], 1), scores, 0.5)


@PLANES.net(lambda: {"x": torch.randn(2, 4, 24, 16), "y": torch.randn(2, 4, 24, 16), "z": torch.randn(4, 16, 16)})
class Einsums(nn.Module):
    """A bilinear form, scores of heads, a trace of outer products."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:
        return (
            torch.einsum("bhid,hde,bhje->bhij", x, z, y),
            torch.einsum("bhid,bhjd->bijh", x, y),
            torch.einsum("bhid,bhid->bh", x, y),
        )


@PLANES.net(lambda: {"image": torch.randn(1, 3, 64, 64)}, {"image": {0: "batch"}})
class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(inside: int, outside: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())

        self.a, self.b, self.c = block(3, 16), block(16, 32), block(32, 64)
        self.up1, self.up2 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.d, self.e, self.head = block(64, 32), block(32, 16), nn.Conv2d(16, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        a = self.a(image)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([self.up1(c), b], 1))
        return self.head(self.e(torch.cat([self.up2(d), a], 1)))


@PLANES.net(lambda: {"image": torch.randn(1, 3, 32, 32)}, {"image": {2: "height", 3: "width"}})
class SuperResolution(nn.Module):
    """ESPCN and the bicubic enlargement of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.Tanh(), nn.Conv2d(32, 27, 3, padding=1))

    def forward(self, image: Tensor) -> Tensor:
        return F.pixel_shuffle(self.body(image), 3) + F.interpolate(image, scale_factor=3.0, mode="bicubic")


@PLANES.net(lambda: {"z": torch.randn(1, 64)}, {"z": {0: "batch"}})
class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64 * 16)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(64, affine=True) for _ in range(2))
        self.blocks = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
        self.last = nn.ConvTranspose2d(64, 3, 4, 2, 1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.first(z).view(-1, 64, 4, 4)
        for norm, block in zip(self.norms, self.blocks):
            x = F.leaky_relu(norm(block(F.interpolate(x, scale_factor=2))), 0.2)
        return torch.tanh(self.last(x))


@PLANES.net(lambda: {"x": torch.randn(1, 40, 24)}, {"x": {0: "batch"}})
class Ranks(nn.Module):
    def forward(self, x: Tensor) -> Any:
        ordered, places = x.sort(1, descending=True)
        return ordered[:, ::4], places[:, :3], x.argmax(2), x.amin(1), x.std(1), x.logsumexp(2)


@PLANES.net(lambda: {"x": torch.randn(64, 8)}, {"x": {0: "points"}})
class KMeans(nn.Module):
    """Three rounds of Lloyd's algorithm."""

    def forward(self, x: Tensor) -> Tensor:
        centres = x[:5]
        for _ in range(3):
            near = F.one_hot(torch.cdist(x, centres).argmin(1), 5).float()
            centres = (near.T @ x) / near.sum(0).clamp(min=1).unsqueeze(1)
        return centres


@PLANES.net(lambda: {"x": torch.randn(1, 8, 12, 12)})
class Modulated(nn.Module):
    """Weights made at run time, as in StyleGAN and dynamic convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 16, 8, 3, 3) / 8)
        self.style = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight * self.style(x.mean((2, 3))).view(1, 1, 8, 1, 1)
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        return F.conv2d(x, weight[0], padding=1)


@PLANES.net(lambda: {"x": torch.randn(1, 16, 20, 20)})
class Deformable(nn.Module):
    """A convolution whose taps move, by bilinear samples of each tap."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets, self.weight = nn.Conv2d(16, 18, 3, padding=1), nn.Conv2d(144, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y, z = torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 20), indexing="ij")
        shifts = self.offsets(x).view(1, 9, 2, 20, 20).permute(0, 1, 3, 4, 2) * 0.1
        taps = [F.grid_sample(x, torch.stack([z, y], -1) + shifts[:, n], align_corners=True) for n in range(9)]
        return self.weight(torch.cat(taps, 1))


@PLANES.net(lambda: {"rays": torch.rand(128, 3)}, {"rays": {0: "rays"}})
class RadianceField(nn.Module):
    """Sines and cosines of the places, then a perceptron with a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(39, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.second, self.head = nn.Sequential(nn.Linear(103, 64), nn.ReLU()), nn.Linear(64, 4)

    def forward(self, rays: Tensor) -> Tensor:
        waves = (rays.unsqueeze(-1) * 2.0 ** torch.arange(6)).flatten(1)
        x = torch.cat([rays, waves.sin(), waves.cos()], 1)
        y = self.head(self.second(torch.cat([self.first(x), x], 1)))
        return torch.cat([torch.sigmoid(y[:, :3]), F.softplus(y[:, 3:])], 1)
