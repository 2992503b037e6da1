"""Neural gas: nodes that spread over features until they cover them, joined where features lie between two of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fscil.nn.relations import squared_distance

NEGLIGIBLE = 14.0  # exp(-14) < 1e-6: nodes further back in the order do not move


class NeuralGas(nn.Module):
    """Nodes: centroid (n, d), variance of the features they win (n, d), label (n,); `ages` (n, n) of edges, 0: none."""

    centroids: Tensor
    variances: Tensor
    labels: Tensor
    ages: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("centroids", torch.zeros(0, dim))
        self.register_buffer("variances", torch.zeros(0, dim))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("ages", torch.zeros(0, 0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def fit(
        self,
        features: Tensor,
        labels: Tensor,
        nodes: int,
        rate: float,
        reach: float,
        lifetime: int,
        generator: torch.Generator,
    ) -> Tensor:
        """Spreads `nodes` over features (n, d), each shown once -> position of the feature that stands for a node."""
        start = torch.randperm(len(features), generator=generator)[:nodes]
        self.centroids = features[start].clone()
        self.ages = torch.zeros(len(start), len(start), dtype=torch.int64, device=features.device)
        for i in torch.randperm(len(features), generator=generator).tolist():
            self.show(features[i], rate, reach, lifetime)
        self._move_idle_nodes(features)
        return self._describe(features, labels)

    def show(self, feature: Tensor, rate: float, reach: float, lifetime: int) -> None:
        """Nodes move towards a feature (d,), the k-th nearest by the share rate * exp(-k / reach)."""
        count = min(len(self.centroids), max(2, int(NEGLIGIBLE * reach) + 1))
        near = (self.centroids - feature).square().sum(1).topk(count, largest=False).indices
        pull = rate * torch.exp(-torch.arange(count, device=near.device) / reach)
        self.centroids[near] += pull[:, None] * (feature - self.centroids[near])
        if count > 1:
            self._connect(int(near[0]), int(near[1]), lifetime)

    def _connect(self, winner: int, second: int, lifetime: int) -> None:
        """Hebbian rule: the edge between the two nearest nodes is young again, the winner's others age and vanish."""
        ages = self.ages[winner]
        ages = torch.where(ages > 0, ages + 1, ages)
        ages[second] = 1
        self.ages[winner] = self.ages[:, winner] = ages.masked_fill(ages > lifetime, 0)

    def winners(self, features: Tensor) -> Tensor:
        """The nearest node of each feature (n, d) -> (n,)."""
        return squared_distance(features, self.centroids).argmin(1)

    def error(self, features: Tensor) -> float:
        """Mean squared distance of features (n, d) to their nearest node."""
        return float((features - self.centroids[self.winners(features)]).square().sum(1).mean())

    def neighbours(self, nodes: Tensor) -> Tensor:
        """Which nodes share an edge with each of `nodes` (k,) -> (k, n) bool."""
        return self.ages[nodes] > 0

    def insert(self, labels: Tensor, centroids: Tensor) -> Tensor:
        """One more node for each label (k,), without edges, as variable as the average node -> positions (k,)."""
        old, new = len(self), len(labels)
        typical = self.variances.mean(0, keepdim=True).expand(new, -1)
        self.centroids = torch.cat([self.centroids, centroids])
        self.variances = torch.cat([self.variances, typical])
        self.labels = torch.cat([self.labels, labels.to(self.labels)])
        self.ages = nn.functional.pad(self.ages, (0, new, 0, new))
        return torch.arange(old, old + new)

    def join(self, features: Tensor, lifetime: int) -> None:
        """Edges by the Hebbian rule for features (n, d); no node moves."""
        for first, second in squared_distance(features, self.centroids).topk(2, 1, largest=False).indices.tolist():
            self._connect(first, second, lifetime)

    def precisions(self, floor: float) -> Tensor:
        """Inverse variances (n, d), those below `floor` * mean raised to it, divided by their own mean."""
        inverse = 1 / self.variances.clamp(min=max(floor * float(self.variances.mean()), 1e-12))
        return inverse / inverse.mean()

    def _move_idle_nodes(self, features: Tensor, rounds: int = 10) -> None:
        """Nodes that win nothing go to the features that are covered worst; those still idle in the end are removed."""
        for _ in range(rounds):
            won = self.winners(features)
            idle = (torch.bincount(won, minlength=len(self.centroids)) == 0).nonzero()[:, 0]
            if not len(idle):
                return
            far = (features - self.centroids[won]).square().sum(1).topk(len(idle)).indices
            self.centroids[idle] = features[far]
        busy = self.winners(features).unique()
        self.centroids, self.ages = self.centroids[busy], self.ages[busy][:, busy]

    def _describe(self, features: Tensor, labels: Tensor) -> Tensor:
        """Label of each node: that of most of the features it wins; variance and nearest of those -> positions (n,)."""
        won, labels = self.winners(features), labels.to(features.device)
        majority, variances, nearest = [], [], []
        for node, centroid in enumerate(self.centroids):
            mine = (won == node).nonzero()[:, 0]
            majority.append(labels[mine].mode().values)
            mine = mine[labels[mine] == majority[-1]]
            variances.append(features[mine].var(0, correction=0))
            nearest.append(mine[(features[mine] - centroid).square().sum(1).argmin()])
        self.labels, self.variances = torch.stack(majority), torch.stack(variances)
        return torch.stack(nearest).cpu()

    def _load_from_state_dict(self, state: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in ("centroids", "variances", "labels", "ages"):
            if prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name], device=self.labels.device))
        super()._load_from_state_dict(state, prefix, *rest)
