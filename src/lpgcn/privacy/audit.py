"""The audit: for one setting all attacks of all adversaries, and what the setting costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.model.sampling import places, renumbered
from lpgcn.privacy import coalition_audit, owner_audit, server_audit, trained
from lpgcn.privacy.attacks import linear_bits, token_graph
from lpgcn.privacy.costs import Made, TrainedModel
from lpgcn.privacy.deployment import Deployment, Seeds, Tell, deploy
from lpgcn.privacy.table import Finding
from lpgcn.privacy.views import Adversary, View, view_of
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, permutation
from lpgcn.runtime.engines.sampler import Sampler

Party = Literal["server", "owner", "client", "coalition", "model"]
PARTIES: Final[tuple[Party, ...]] = get_args(Party)
SHARES: Final = (0.01, 0.1)
"""Of the clients, that collude with the server."""


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of one setting."""

    suite: str
    model: str
    virtual_items: str
    virtual_draw: str
    list_sizes: str
    planner: str
    steps: int
    listed_per_item: float
    """Listed items for each real one."""
    bytes_per_step: float | None
    """Of a mean client, up and down; absent if no federation was run and no model trained."""
    seconds_per_step: float | None
    """Of a processor, for all parties together; absent if no federation was run."""
    recall: float | None
    """Recall@20 on the validation part after training, if a model was trained."""
    lines: list[Finding]

    def strongest(self) -> dict[str, float]:
        """For each adversary the AUC of its strongest attack on the real/virtual bits."""
        found: dict[str, float] = {}
        for line in self.lines:
            if line.about == server_audit.BITS and line.auc is not None:
                found[line.adversary] = max(line.auc.value, found.get(line.adversary, 0.0))
        return found


def audit(
    split: Split,
    config: Config,
    *,
    steps: int,
    epochs: int = 0,
    parties: Sequence[Party] = PARTIES,
    people: Mapping[str, Mapping[str, str]] | None = None,
    seed: int = 0,
    made: Made | None = None,
    tell: Tell = lambda _: None,
) -> Audited:
    """With `steps` 0 no federation is run, and the server has the token graph only. With `epochs` a
    model is trained, which is what predictions give away."""
    people, found, made = people or {}, list[Finding](), made or Made(split)
    recall = bytes_per_step = seconds_per_step = None
    if steps:
        deployment = deploy(split, config, steps, seed=seed, made=made, tell=tell)
        bytes_per_step = deployment.bytes_per_step
        seconds_per_step = deployment.seconds_per_step
        case = _Case.of(deployment)
    else:
        case = _Case.without_federation(split, config, seed)
    if "server" in parties:
        tell("attacks of the server")
        found += case.server_alone()
    if case.deployment is not None:
        found += case.watched(parties, people, tell)
    if "model" in parties and epochs:
        tell(f"training for {epochs} epochs")
        model = made.model(config, epochs)
        recall = model.recall
        bytes_per_step = bytes_per_step or made.bytes_per_step(config)
        found += trained.lines(split, model.vectors, people)
        found += case.with_final_vectors(model)
    return Audited(
        suite=config.suite,
        model=config.model,
        virtual_items=config.virtual_items,
        virtual_draw=config.virtual_draw,
        list_sizes=config.list_sizes,
        planner=config.planner,
        steps=steps,
        listed_per_item=len(case.lists.values) / len(case.real.values),
        bytes_per_step=bytes_per_step,
        seconds_per_step=seconds_per_step,
        recall=recall,
        lines=found,
    )


class _Case:
    """Lists of places, rising, and the truth about them."""

    def __init__(
        self, split: Split, lists: Ragged, catalogue: Int64, deployment: Deployment | None = None
    ) -> None:
        self._split, self.lists, self._catalogue = split, lists, catalogue
        self.deployment = deployment
        self.real = renumbered(split.train.by_user, places(catalogue))
        self._popularity = split.train.item_degrees[catalogue]

    @classmethod
    def of(cls, deployment: Deployment) -> _Case:
        lists = server_audit.rising(deployment.record.topology.listed)
        return cls(deployment.split, lists, deployment.catalogue, deployment)

    @classmethod
    def without_federation(cls, split: Split, config: Config, seed: int) -> _Case:
        """What everybody would list, drawn by the formula."""
        drawn = Sampler(split.train, config.changed(seed=Seeds.drawn(seed, 0).clients))
        return cls(split, drawn.listed_places, drawn.catalogue)

    @property
    def _all_real(self) -> bool:
        return len(self.lists.values) == len(self.real.values)

    @cached_property
    def _scores(self) -> dict[str, Float64]:
        """None where there is nothing to tell apart."""
        if self._all_real:
            return {}
        return token_graph.all_scores(self.lists, self._split.n_items)

    @cached_property
    def _servers_view(self) -> View:
        assert self.deployment is not None
        return view_of(self.deployment, Adversary(server_audit.NAME, server=True))

    @cached_property
    def _solved(self) -> Float64 | None:
        """The bits, as far as the server alone solves for them."""
        assert self.deployment is not None
        if self._all_real or not self.deployment.linear:
            return None
        everybody = np.arange(len(self.lists))
        return linear_bits.scores(self._servers_view, self.lists, everybody)

    def server_alone(self) -> Iterator[Finding]:
        n_items, popularity = self._split.n_items, self._popularity
        yield from server_audit.from_tokens(
            self.lists, self.real, n_items, popularity, self._scores
        )
        yield from server_audit.by_popularity(
            self.lists, self.real, self._catalogue, self._split.train
        )
        if self.deployment is not None:
            yield from server_audit.from_clear_rows(
                self._servers_view, self.lists, self.real, popularity, self._solved
            )

    def watched(
        self, parties: Sequence[Party], people: Mapping[str, Mapping[str, str]], tell: Tell
    ) -> Iterator[Finding]:
        """Whoever needs a federation that was run."""
        assert self.deployment is not None
        for one in adversaries(self.deployment):
            if not one.server and ("client" if "client" in one.name else "owner") in parties:
                tell(f"attacks of the {one.name}")
                yield from owner_audit.lines(self.deployment, one, people)
        if "coalition" in parties:
            for one in adversaries(self.deployment):
                if one.server and one.clients:
                    tell(f"attacks of {one.name}")
                    yield from coalition_audit.lines(
                        self.deployment, one, self.lists, self._scores, self._solved
                    )

    def with_final_vectors(self, model: TrainedModel) -> Iterator[Finding]:
        return trained.about_lists(
            self.lists, self.real, self._scores, model.vectors, self._catalogue,
            self._popularity,
        )  # fmt: skip


def adversaries(deployment: Deployment) -> list[Adversary]:
    """Owners by load, an ordinary client, and the server with 1, 1 % and 10 % of the clients at
    random, with its heaviest owner, or with 1 % of the clients that are the heaviest owners."""
    topology = deployment.record.topology
    n_clients = topology.n_clients
    shuffled = permutation(0, Purpose.AUDIT, n_clients, 2)
    loads, owners = topology.by_owner.lengths, np.flatnonzero(topology.is_owner)
    owners = owners[np.argsort(-loads[owners], kind="stable")]
    ordinary = [one for one in shuffled.tolist() if not topology.is_owner[one]][:1]
    chosen = {"heaviest": 0, "median": len(owners) // 2, "lightest": len(owners) - 1}
    found = [
        Adversary(f"owner, {name}", server=False, clients=(int(owners[rank]),))
        for name, rank in chosen.items()
    ]
    found += [Adversary("ordinary client", server=False, clients=(one,)) for one in ordinary]
    found += [Adversary("server + 1 client", server=True, clients=(one,)) for one in ordinary]
    for share in SHARES:
        some = tuple(shuffled[: max(1, round(share * n_clients))].tolist())
        found.append(Adversary(f"server + {share:.0%} of clients", server=True, clients=some))
    found.append(Adversary("server + heaviest owner", server=True, clients=(int(owners[0]),)))
    most = tuple(owners[: max(1, round(SHARES[0] * n_clients))].tolist())
    found.append(Adversary(f"server + {SHARES[0]:.0%}, owners", server=True, clients=most))
    return found
