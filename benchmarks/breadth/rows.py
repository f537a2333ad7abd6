"""Small networks that people write by hand over rows of things: recurrences, sound, recommenders, policies."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.breadth.handmade import Handmade, words

SEQUENCES = Handmade()
architectures = SEQUENCES.architectures


@SEQUENCES.net(lambda: {"x": torch.randn(1, 16, 32)}, {"x": {0: "batch", 1: "length"}})
class BidirectionalLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(32, 48, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.rnn(x)


@SEQUENCES.net(lambda: {"x": torch.randn(1, 16, 32)}, {"x": {0: "batch", 1: "length"}})
class GruTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(32, 48, batch_first=True), nn.Linear(48, 9)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.rnn(x)[0]).log_softmax(-1)


@SEQUENCES.net(lambda: {"x": torch.randn(1, 16, 32)}, {"x": {0: "batch"}})
class ElmanRnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(32, 48, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.rnn(x)[1]


@SEQUENCES.net(lambda: {"source": words(), "target": words(8)}, {"source": {1: "source"}, "target": {1: "target"}})
class GruTranslator(nn.Module):
    """Encoder, decoder with dot-product attention on it, teacher forced."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.encoder, self.decoder = nn.GRU(32, 64, batch_first=True), nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(128, 100)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoder(self.words(source))
        y, _ = self.decoder(self.words(target), state)
        context = torch.softmax(y @ memory.transpose(1, 2), -1) @ memory
        return self.head(torch.cat([y, context], -1))


@SEQUENCES.net(lambda: {"source": words(), "target": words(8)}, {"source": {1: "source"}, "target": {1: "target"}})
class Translator(nn.Module):
    """nn.Transformer with its causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(64, 64)
        self.body = nn.Transformer(64, 4, 2, 2, 128, batch_first=True, dropout=0.0)
        self.head = nn.Linear(64, 100)

    def embed(self, words: Tensor) -> Tensor:
        return self.words(words) + self.places(torch.arange(words.shape[1]))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = torch.triu(torch.full((target.shape[1], target.shape[1]), float("-inf")), 1)
        return self.head(self.body(self.embed(source), self.embed(target), tgt_mask=hidden))


@SEQUENCES.net(lambda: {"x": torch.randn(4, 64)}, {"x": {0: "batch"}})
class DeepAndCross(nn.Module):
    """Recommender: cross layers beside a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.head = nn.Linear(96, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.cross:
            y = x * layer(y) + y
        return torch.sigmoid(self.head(torch.cat([y, self.deep(x)], 1)))


@SEQUENCES.net(
    lambda: {"sparse": words(26, 50, 4), "dense": torch.randn(4, 13)}, {"sparse": {0: "b"}, "dense": {0: "b"}}
)
class Dlrm(nn.Module):
    """Recommender: embeddings, all pairwise dot products."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(26))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(367, 64), nn.ReLU(), nn.Linear(64, 1))
        rows, columns = torch.tril_indices(27, 27, -1)
        self.register_buffer("pairs", rows * 27 + columns)

    def forward(self, sparse: Tensor, dense: Tensor) -> Tensor:
        x = self.bottom(dense)
        both = torch.stack([x, *(table(sparse[:, n]) for n, table in enumerate(self.tables))], 1)
        products = (both @ both.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


@SEQUENCES.net(lambda: {"wave": torch.randn(1, 1, 1024)}, {"wave": {2: "time"}})
class WaveNet(nn.Module):
    """Dilated gated convolutions with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**n) for n in range(6))
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(6))
        self.head = nn.Conv1d(16, 32, 1)

    def forward(self, wave: Tensor) -> Tensor:
        x = self.first(wave)
        for n, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            a, b = gate(F.pad(x, (2**n, 0))).chunk(2, 1)
            x = x + skip(torch.tanh(a) * torch.sigmoid(b))
        return self.head(x)


@SEQUENCES.net(lambda: {"mel": torch.randn(1, 20, 32)}, {"mel": {2: "frames"}})
class Vocoder(nn.Module):
    """Transposed convolutions from frames to samples, as HiFi-GAN has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(20, 64, 7, padding=3)
        self.ups = nn.ModuleList(nn.ConvTranspose1d(64 >> n, 32 >> n, 8, 4, 2) for n in range(3))
        self.blocks = nn.ModuleList(nn.Conv1d(32 >> n, 32 >> n, 3, padding=3, dilation=3) for n in range(3))
        self.last = nn.Conv1d(8, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = x + block(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x)))


@SEQUENCES.net(lambda: {"x": torch.randn(1, 24, 64)}, {"x": {0: "batch", 1: "length"}})
class ExpertsByTopK(nn.Module):
    """A mixture of experts: each token goes to two of four, all are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        value, index = self.gate(x).softmax(-1).topk(2, -1)
        weight = torch.zeros_like(self.gate(x)).scatter(-1, index, value)
        return torch.stack([e(x) for e in self.experts], -1).mul(weight.unsqueeze(-2)).sum(-1)


@SEQUENCES.net(lambda: {"x": torch.randn(1, 32, 16)}, {"x": {0: "batch"}})
class SelectiveScan(nn.Module):
    """A state-space layer whose recurrence is a cumulative sum of logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.rates, self.values = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        decay = F.logsigmoid(self.rates(x)).cumsum(1)
        return decay.exp() * (self.values(x) * (-decay).clamp(max=20).exp()).cumsum(1)


@SEQUENCES.net(lambda: {"x": torch.randn(1, 64)}, {"x": {0: "batch"}})
class KolmogorovArnold(nn.Module):
    """Sums of radial functions of each input."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.linspace(-2, 2, 8))
        self.weights = nn.Parameter(torch.randn(64, 8, 10) / 20)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bik,iko->bo", torch.exp(-((x.unsqueeze(-1) - self.centres) ** 2)), self.weights)


@SEQUENCES.net(lambda: {"x": torch.randn(2, 256)}, {"x": {0: "batch"}})
class Spectrum(nn.Module):
    """Frames, a window, a discrete Fourier transform by products, decibels."""

    def __init__(self) -> None:
        super().__init__()
        places = torch.arange(64).outer(torch.arange(33)) * (2 * torch.pi / 64)
        self.register_buffer("waves", torch.cat([places.cos(), places.sin()], 1) * torch.hann_window(64)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        real, imaginary = (x.unfold(1, 64, 32) @ self.waves).split(33, -1)
        return 10 * torch.log10((real**2 + imaginary**2).clamp(min=1e-8))


@SEQUENCES.net(
    lambda: {"ids": words(20), "mask": (torch.arange(20) < 15).long()[None]}, {"ids": {1: "l"}, "mask": {1: "l"}}
)
class MaskedMean(nn.Module):
    """A sentence embedding: mean of the words that count, normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        weight = mask.unsqueeze(-1).float()
        return F.normalize((self.words(ids) * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=-1)


@SEQUENCES.net(lambda: {"observation": torch.randn(1, 24)}, {"observation": {0: "batch"}})
class ActorCritic(nn.Module):
    """A policy with a squashed mean and a clamped deviation, and its value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean, self.deviation, self.value = nn.Linear(64, 6), nn.Linear(64, 6), nn.Linear(64, 1)

    def forward(self, observation: Tensor) -> Any:
        x = self.body(observation)
        return torch.tanh(self.mean(x)), self.deviation(x).clamp(-5, 2).exp(), self.value(x)
