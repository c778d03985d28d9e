"""Propagation of backbones whose layers map vectors: e^(l+1) = f_l(e^(l), m^(l); Θ_l).

With s_n what a node scales by when it pushes, and r_n when it has added up (both |N|^-½, or 1 and
1/|N| for means; |N| is one more with self-loops),

    forward    push x = e^(l)·s     m^(l) = (Σ x)·r  [+ e^(l)·s·r]     e^(l+1) = f_l(e^(l), m^(l))
    backward   (a, b, c) = f_l's vector-Jacobian product of g^(l+1)
               push x = b·r         g^(l) = a [+ b·s·r] + (Σ x)·s + ∂Loss/∂e^(l)

and c is these nodes' part of ∂Loss/∂Θ_l. Between two exchanges vectors are float64, row by row;
what is pushed is rounded to the grid, as in `propagation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.config import Config
from lpgcn.model.adam import Gradient
from lpgcn.model.backbones import Linear, backbone_of
from lpgcn.model.features import Features
from lpgcn.model.grid import Grid
from lpgcn.model.kernels import Floats, Integers, Kernels
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.propagation import Backward, Forward, Nodes
from lpgcn.model.weights import Sums, Weights
from lpgcn.ragged import Ragged


class DenseNodes(Nodes):
    """See `Nodes`."""

    def __init__(
        self, name: str, degrees: Int64, segments: Ragged, config: Config, kernels: Kernels,
        in_all: int | None = None, features: Features | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, degrees, segments, config, kernels, in_all, features)
        ones = np.ones(len(self))
        means = self.backbone.aggregation == "mean"
        self.sent, self.received = (
            (ones, self.inverse_degree) if means else (self.scale, self.scale)
        )
        self.building = 1 / np.sqrt(np.maximum(degrees, 1).astype(np.float64))
        self.loop = self.sent * self.received if self.backbone.self_loop else None

    def begin(self, initial: Floats, weights: Weights | None = None) -> Forward:
        return self._begun(initial.astype(np.float64), weights)

    def build(
        self, arrived: Integers, weights: Weights | None = None, largest: int | None = None
    ) -> Forward:
        sums = self.sums(arrived, self.forward_grid, "building users")
        return self._begun(sums * (self.building * self.forward_grid.unit)[:, None], weights)

    def _begun(self, initial: Float64, weights: Weights | None) -> Forward:
        assert weights is not None, "these nodes map vectors"
        mapped = self.mapped(weights)
        initial = initial if mapped is None else initial + mapped
        push = self.rounded(initial, self.sent, self.forward_grid, "layer 0 forward")
        return DenseForward(self, (push,), mapped=mapped, weights=weights, vectors=(initial,))

    def sums(self, arrived: Integers, grid: Grid, where: str, rows: Int64 | None = None) -> Int64:
        segments = self.segments if rows is None else self.segments.only(rows)
        self.check_sums(arrived, segments, grid, where)
        return self.kernels.sums(segments, arrived)

    def rounded(self, rows: Float64, factor: Float64, grid: Grid, where: str) -> Integers:
        return grid.round(rows, factor * grid.steps, f"{where}, {self.name}", self.kernels)


@dataclass(frozen=True)
class _Last:
    """The last layer, of some rows."""

    rows: Int64
    messages: Float64
    vectors: Float64


@dataclass(frozen=True, kw_only=True)
class DenseForward(Forward):
    """See `Forward`."""

    weights: Weights
    vectors: tuple[Float64, ...]
    """e^(0), …, e^(l)."""
    messages: tuple[Float64, ...] = ()
    """m^(0), …, m^(l−1)."""
    last: _Last | None = None

    @property
    def dense(self) -> DenseNodes:
        assert isinstance(self.nodes, DenseNodes)
        return self.nodes

    def absorb(self, arrived: Integers, largest: int | None = None) -> Forward:
        nodes, number = self.dense, len(self.messages)
        messages, vectors = self._mapped(arrived, None)
        push = nodes.rounded(vectors, nodes.sent, self.grid, f"layer {number + 1} forward")
        return replace(
            self,
            pushes=(*self.pushes, push),
            vectors=(*self.vectors, vectors),
            messages=(*self.messages, messages),
        )

    def _mapped(self, arrived: Integers, rows: Int64 | None) -> tuple[Float64, Float64]:
        """m^(l) and e^(l+1), of all nodes or of some."""
        nodes, number = self.dense, len(self.messages)
        which = slice(None) if rows is None else rows
        sums = nodes.sums(arrived, self.grid, self.where, rows)
        own = self.vectors[-1][which]
        messages: Float64 = sums * (nodes.received[which] * self.grid.unit)[:, None]
        if nodes.loop is not None:
            messages += nodes.loop[which, None] * own
        return messages, nodes.backbone.layer(number, own, messages, self.weights)

    def finish(
        self, arrived: Integers, rows: Int64 | None = None, largest: int | None = None
    ) -> Forward:
        messages, vectors = self._mapped(arrived, rows)
        every = np.arange(len(self.nodes)) if rows is None else rows
        before = self.vectors if rows is None else [one[rows] for one in self.vectors]
        finals = self.nodes.backbone.readout([*before, vectors])
        last = _Last(every, messages, vectors)
        return replace(self, finals=finals.astype(self.nodes.dtype), last=last)

    def initial(self, rows: Int64) -> Float64:
        return self.vectors[0][rows]

    def backward(self, loss: LossGradient) -> Backward:
        nodes = self.dense
        push = np.zeros((len(nodes), nodes.dim), dtype=nodes.backward_grid.integer)
        turned = DenseBackward(
            self, loss, loss.sums, nodes.layers, push, own=np.zeros(push.shape), sums={}
        )
        return turned.begun() if len(loss.rows) else turned


@dataclass(frozen=True, kw_only=True)
class DenseBackward(Backward):
    """See `Backward`; `from_loss` is ∂Loss/∂e of the touched nodes, in steps of the grid."""

    own: Float64
    """What f_l's gradient leaves with the nodes of ∂Loss/∂e^(l); at the end g^(0)."""
    sums: Sums

    @property
    def dense_forward(self) -> DenseForward:
        assert isinstance(self.forward, DenseForward)
        return self.forward

    def _from_loss(self, layer: int) -> Float64 | None:
        """∂Loss/∂e^(l) of the touched nodes."""
        backbone = self.forward.nodes.backbone
        return backbone.readout_gradient(layer, self.from_loss * np.float64(self.grid.unit))

    def begun(self) -> Backward:
        """The last layer, of the touched nodes: all others have no gradient yet."""
        rows, last = self.loss.rows, self.dense_forward.last
        gradient = self._from_loss(self.layer)
        assert last is not None, "a loss is one of final vectors"
        if gradient is None:
            return self
        at = np.searchsorted(last.rows, rows)
        return self._pulled(rows, last.messages[at], last.vectors[at], gradient)

    def absorb(
        self, arrived: Integers, largest: int | None = None, present: Bits | None = None
    ) -> Backward:
        forward, nodes, layer = self.dense_forward, self.dense_forward.dense, self.layer - 1
        sums = nodes.sums(arrived, self.grid, self.where)
        gradient = self.own + sums * (nodes.sent * self.grid.unit)[:, None]
        from_loss = self._from_loss(layer) if len(self.loss.rows) else None
        if from_loss is not None:
            gradient[self.loss.rows] += from_loss
        if layer:
            down = replace(self, layer=layer)
            return down._pulled(None, forward.messages[layer - 1], forward.vectors[layer], gradient)
        push = nodes.rounded(gradient, np.ones(len(nodes)), self.grid, "layer 0 backward")
        return replace(self, layer=0, own=gradient, push=push)

    def _pulled(
        self, rows: Int64 | None, messages: Float64, result: Float64, gradient: Float64
    ) -> Backward:
        """The vector-Jacobian product of f_(l−1), of all nodes or of some; others have none."""
        forward, nodes, number = self.dense_forward, self.dense_forward.dense, self.layer - 1
        which = slice(None) if rows is None else rows
        found = nodes.backbone.layer_gradient(
            number, forward.vectors[number][which], messages, result, gradient, forward.weights
        )
        kept = found.vectors
        if nodes.loop is not None:
            kept = kept + nodes.loop[which, None] * found.messages
        where = f"layer {self.layer} backward"
        pushed = nodes.rounded(found.messages, nodes.received[which], self.grid, where)
        sums = dict(self.sums)
        for name, (left, right) in found.weights.items():
            part = nodes.weight_sums.of(name, left, right)
            sums[name] = sums[name] + part if name in sums else part
        if rows is None:
            return replace(self, own=kept, push=pushed, sums=sums)
        own, push = np.zeros(self.own.shape), np.zeros_like(self.push)
        own[rows], push[rows] = kept, pushed
        return replace(self, own=own, push=push, sums=sums)

    def weight_sums(self) -> Sums:
        return self.sums | super().weight_sums()

    def at_beginning(self) -> Float64:
        return self.own.copy()

    def gradient(self, batch_size: int) -> Gradient:
        factor = np.full(len(self.push), self.grid.unit / batch_size)
        return self._of_parameters(factor, batch_size)

    def push_to_built(self) -> Integers:
        nodes = self.dense_forward.dense
        return nodes.rounded(self.regularised(), nodes.building, self.grid, "update")


def nodes_of(
    name: str, degrees: Int64, segments: Ragged, config: Config, kernels: Kernels, *, in_all: int,
    features: Features | None = None,
) -> Nodes:  # fmt: skip
    """Nodes as the backbone propagates them; there are `in_all` in the whole federation."""
    kind = Nodes if isinstance(backbone_of(config), Linear) else DenseNodes
    return kind(name, degrees, segments, config, kernels, in_all, features)
