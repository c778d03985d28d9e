"""Propagation of the nodes of one kind that one party owns: one user, a few items, or all.

Here for the linear backbones; `dense` has the others, and chooses. With s = |N|^-½, N a node's real
neighbours, LightGCN (Eqs. 1–3) and its gradient are

    forward    push x = e^(l)·s        e^(l+1) = m·s                e = Σ_l α_l e^(l)
    backward   push x = g^(l+1)·s      g^(l)   = m·s + ∂Loss/∂e^(l)
    with ∂Loss/∂e^(l) = α_l·∂Loss/∂e, and every α_l = 1/(L + 1) if nothing else is said.

Only what is pushed is stored, as integers on a grid, so the two scalings that meet between two
layers are one: e^(l+1)·s = m·s² = m / |N|, the mean of what arrived, rounded. No push is larger
than the largest before it, and only the first and those that the loss adds to can leave the grid. A
node without neighbours has s = 1: nothing is pushed or arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.config import Config
from lpgcn.model.adam import Gradient
from lpgcn.model.backbones import Linear, backbone_of
from lpgcn.model.features import Features
from lpgcn.model.grid import Grid, largest_magnitude
from lpgcn.model.kernels import Floats, Integers, Kernels, empty_rows
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.weights import Sums, Weights, WeightSums, gradient_grid
from lpgcn.ragged import Ragged


class Nodes:
    """What does not change in a run: degrees, and which of the arrived rows each node adds up."""

    def __init__(
        self, name: str, degrees: Int64, segments: Ragged, config: Config, kernels: Kernels,
        in_all: int | None = None, features: Features | None = None,
    ) -> None:  # fmt: skip
        """`in_all` is the number of nodes in the whole federation, if these are not all."""
        self.name, self.segments, self.kernels = name, segments, kernels
        self.features = features
        # A matrix may be one for all layers, and then has a part of each.
        parts = config.layers * (len(segments) if in_all is None else in_all)
        self.weight_sums = WeightSums(gradient_grid(config), parts, kernels)
        self.layers, self.reg, self.dtype = config.layers, config.reg, config.dtype
        self.dim = config.dim
        self.backbone = backbone_of(config)
        self.forward_grid = Grid.forward(config.dtype)
        self.backward_grid = Grid.backward(config.dtype, config.batch_size)
        degree = np.maximum(degrees + self.backbone.self_loop, 1).astype(np.float64)
        self.scale, self.unscale = 1 / np.sqrt(degree), np.sqrt(degree)
        self.inverse_degree = 1 / degree

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def linear(self) -> Linear:
        assert isinstance(self.backbone, Linear), "others are `dense.DenseNodes`"
        return self.backbone

    def begin(self, initial: Floats, weights: Weights | None = None) -> Forward:
        """e^(0) are parameters of these nodes, and what their features add."""
        mapped = self.mapped(weights)
        vectors = initial if mapped is None else initial + mapped
        push, largest = self._first_push(vectors)
        return Forward(self, (push,), largest, mapped=mapped)

    def mapped(self, weights: Weights | None) -> Float64 | None:
        """features·Θ, where these nodes have features."""
        if self.features is None:
            return None
        assert weights is not None, "features are mapped"
        return self.features.mapped(weights)

    def _first_push(self, vectors: Floats) -> tuple[Integers, int]:
        grid, where = self.forward_grid, f"layer 0 forward, {self.name}"
        return grid.rounded(vectors, self.scale * grid.steps, where, self.kernels)

    def build(
        self, arrived: Integers, weights: Weights | None = None, largest: int | None = None
    ) -> Forward:
        """e^(0) = |I_u|^-½ Σ W_i (Eq. 6), from the W_i that arrived, on the forward grid; and what
        features add."""
        grid, where, mapped = self.forward_grid, "building users", self.mapped(weights)
        push = self.averages(arrived, grid, where, largest=largest)
        if mapped is not None:
            more, every = self._first_push(mapped)[0], np.arange(len(self))
            largest = grid.add(push, every, more, where, self.kernels)
        return Forward(self, (push,), largest, mapped=mapped)

    def from_loss(self, loss: LossGradient, layer: int) -> tuple[Integers, int]:
        """∂Loss/∂e^(l)·s of the nodes that the batch touches, and the largest magnitude."""
        scale = self.scale[loss.rows] * self.linear.layer_weight(layer)
        where = f"layer {layer} backward, {self.name}"
        return self.backward_grid.rounded(loss.sums, scale, where, self.kernels)

    def check_sums(self, rows: Integers, segments: Ragged, grid: Grid, where: str) -> None:
        """Sums of 32-bit numbers always fit; those of 64-bit ones are refused if they might not."""
        if grid.integer is np.int64:
            longest = int(segments.lengths.max(initial=0))
            grid.check_sums(largest_magnitude(rows), longest, f"{where}, {self.name}")

    def averages(
        self, arrived: Integers, grid: Grid, where: str, *, rows: Int64 | None = None,
        largest: int | None = None, present: Bits | None = None,
    ) -> Integers:  # fmt: skip
        """Of all nodes or of some, by what is known of that which arrived (see `Kernels`)."""
        segments, factor = self.segments, self.inverse_degree
        if rows is not None:
            segments, factor = segments.only(rows), factor[rows]
        self.check_sums(arrived, segments, grid, where)
        return self.kernels.averages(segments, arrived, factor, largest=largest, present=present)


@dataclass(frozen=True)
class Forward:
    """A forward pass (Algorithm 4) at one layer."""

    nodes: Nodes
    pushes: tuple[Integers, ...]
    """Of all layers so far."""
    largest: int | None = None
    """No magnitude in the last push is above it, where that is known."""
    finals: Floats | None = None
    """After the last layer: e, of all nodes or of some."""
    mapped: Float64 | None = None
    """What features add to e^(0)."""

    @property
    def grid(self) -> Grid:
        return self.nodes.forward_grid

    @property
    def where(self) -> str:
        """For errors."""
        return f"layer {len(self.pushes) - 1} forward"

    @property
    def push(self) -> Integers:
        """What the nodes send in the next exchange."""
        return self.pushes[-1]

    def absorb(self, arrived: Integers, largest: int | None = None) -> Forward:
        """One layer: Eq. 1 for users, Eq. 2 for items. No average is above the `largest` magnitude
        that arrived."""
        push = self.nodes.averages(arrived, self.grid, self.where, largest=largest)
        return Forward(self.nodes, (*self.pushes, push), largest, mapped=self.mapped)

    @property
    def final(self) -> Floats:
        assert self.finals is not None, "the last layer comes before the final vectors"
        return self.finals

    def finish(
        self, arrived: Integers, rows: Int64 | None = None, largest: int | None = None
    ) -> Forward:
        """The last layer, and e = Σ_l α_l e^(l) (Eq. 3) of all nodes or of some, rising."""
        nodes, which = self.nodes, slice(None) if rows is None else rows
        last = nodes.averages(arrived, self.grid, self.where, rows=rows, largest=largest)
        weights, factor = nodes.linear.readout_weights
        total = last * weights[-1]
        for push, weight in zip(self.pushes, weights, strict=False):
            total += weight * (push if rows is None else push.take(rows, axis=0))
        total *= (nodes.unscale[which] * (self.grid.unit * factor))[:, None]
        return replace(self, finals=total.astype(nodes.dtype))

    def initial(self, rows: Int64) -> Float64:
        """e^(0) of some nodes, as it was pushed."""
        nodes = self.nodes
        scale = nodes.unscale[rows] * self.grid.unit
        return self.pushes[0].take(rows, axis=0) * scale[:, None]

    def regulariser(self, loss: LossGradient) -> Float64:
        """½λn·‖e^(0)‖² of every node that the batch touches, in n samples: its part of the loss."""
        if not self.nodes.reg:
            return np.zeros(len(loss.rows))
        initial, own = self.initial(loss.rows), np.arange(len(loss.rows))
        squares = self.nodes.kernels.dots(initial, initial, own, own)
        return 0.5 * self.nodes.reg * loss.in_samples * squares

    def backward(self, loss: LossGradient) -> Backward:
        """g^(L)·s = s·α_L·∂Loss/∂e, zero where the batch does not touch."""
        nodes = self.nodes
        grid = nodes.backward_grid
        from_loss, largest = nodes.from_loss(loss, nodes.layers)
        push = from_loss
        if len(loss.rows) < len(nodes):
            push = np.zeros((len(nodes), nodes.dim), dtype=grid.integer)
            push[loss.rows] = from_loss
        return Backward(self, loss, from_loss, nodes.layers, push, largest)


@dataclass(frozen=True)
class Backward:
    """A backward pass (Algorithm 6) at one layer. Gradients are B times those of the mean loss."""

    forward: Forward
    loss: LossGradient
    from_loss: Integers
    """∂Loss/∂e^(l)·s of the touched nodes."""
    layer: int
    push: Integers
    """What the nodes send in the next exchange."""
    largest: int | None = None
    """No magnitude in it is above that, where it is known."""

    @property
    def grid(self) -> Grid:
        return self.forward.nodes.backward_grid

    @property
    def where(self) -> str:
        """For errors."""
        return f"layer {self.layer} backward"

    def absorb(
        self, arrived: Integers, largest: int | None = None, present: Bits | None = None
    ) -> Backward:
        """One layer: Eqs. 18–27, all of the same form."""
        nodes, rows = self.forward.nodes, self.loss.rows
        push = nodes.averages(arrived, self.grid, self.where, largest=largest, present=present)
        layer, from_loss = self.layer - 1, self.from_loss
        where = f"layer {layer} backward, {nodes.name}"
        if nodes.linear.layer_weight(layer) != nodes.linear.layer_weight(self.layer):
            from_loss, _ = nodes.from_loss(self.loss, layer)
        touched = self.grid.add(push, rows, from_loss, where, nodes.kernels)
        largest = None if largest is None else max(largest, touched)
        return Backward(self.forward, self.loss, from_loss, layer, push, largest)

    def weight_sums(self) -> Sums:
        """What these nodes add to the gradients of the dense weights; at the end, when g^(0) is
        known, features add Σ features ⊗ (g^(0) + n·λ·e^(0))."""
        nodes = self.forward.nodes
        if nodes.features is None:
            return {}
        left, name = nodes.features.rows, nodes.features.name
        return {name: nodes.weight_sums.of(name, left, self.regularised())}

    def at_beginning(self) -> Float64:
        """g^(0)."""
        return self.push * (self.forward.nodes.unscale * self.grid.unit)[:, None]

    def regularised(self) -> Float64:
        """g^(0) + n·λ·e^(0)."""
        gradient, rows = self.at_beginning(), self.loss.rows
        pull = self.loss.in_samples * self.forward.nodes.reg
        gradient[rows] += pull[:, None] * self.forward.initial(rows)
        return gradient

    def gradient(self, batch_size: int) -> Gradient:
        """g^(0)/B = push·|N|^½/B, and n·λ/B·e^(0) where the batch touches."""
        nodes = self.forward.nodes
        return self._of_parameters(nodes.unscale * (self.grid.unit / batch_size), batch_size)

    def _of_parameters(self, factor: Float64, batch_size: int) -> Gradient:
        """Adam adds decay·θ; where features add to θ, e^(0) has more to decay."""
        found, mapped = Gradient(self.push, factor, self.decay(batch_size)), self.forward.mapped
        if mapped is None:
            return found
        more = (found.decay / factor)[:, None] * mapped
        return replace(found, integers=self.push + more)

    def decay(self, batch_size: int) -> Float64:
        """n·λ/B of each node."""
        decay = np.zeros(len(self.forward.nodes))
        decay[self.loss.rows] = self.loss.in_samples * (self.forward.nodes.reg / batch_size)
        return decay

    def push_to_built(self) -> Integers:
        """(g^(0) + n·λ·e^(0))·s: what a built user returns to the W_i it is made of (Eq. 29)."""
        nodes, rows = self.forward.nodes, self.loss.rows
        where, grid = f"update, {nodes.name}", self.grid
        decay = self.loss.in_samples * nodes.reg * nodes.scale[rows] * grid.steps
        decayed = grid.round(self.forward.initial(rows), decay, where, nodes.kernels)
        push = empty_rows(self.push.shape, grid.integer)
        push[:] = self.push
        grid.add(push, rows, decayed, where, nodes.kernels)
        return push


Pass = TypeVar("Pass", Forward, Backward)


def exchanged(users: Pass, items: Pass) -> tuple[Pass, Pass]:
    """One layer of all nodes at one place, where it is known how large pushes can be."""
    return users.absorb(items.push, items.largest), items.absorb(users.push, users.largest)


def finished(
    users: Forward, items: Forward, some_users: Int64 | None = None, some_items: Int64 | None = None
) -> tuple[Forward, Forward]:
    """The last layer of the same, of all nodes or of some."""
    return (
        users.finish(items.push, some_users, items.largest),
        items.finish(users.push, some_items, users.largest),
    )


def building_push(parameter: Floats, items: Nodes) -> tuple[Integers, int]:
    """W_i on the forward grid, as it goes out to the users that are built from it, and the largest
    magnitude."""
    grid = items.forward_grid
    where, factor = f"building users, {items.name}", np.full(len(items), grid.steps)
    return grid.rounded(parameter, factor, where, items.kernels)


def gradient_of_building(items: Nodes, arrived: Integers, batch_size: int) -> Gradient:
    """∂Loss/∂W_i = Σ_{u ∈ U_i} of what the users pushed, at the owner of the items."""
    items.check_sums(arrived, items.segments, items.backward_grid, "update")
    sums = items.kernels.sums(items.segments, arrived)
    factor = np.full(len(items), items.backward_grid.unit / batch_size)
    return Gradient(sums, factor, np.zeros(len(items)))
