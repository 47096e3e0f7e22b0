"""Kubernetes' HorizontalPodAutoscaler and KEDA, with their defaults. Each rule names its source."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

SYNC_S = 15
"""--horizontal-pod-autoscaler-sync-period."""
POLL_S = 30
"""ScaledObject.spec.pollingInterval."""
_TOLERANCE = 0.1
"""--horizontal-pod-autoscaler-tolerance."""
_STABLE_S = 300
"""behavior.scaleDown.stabilizationWindowSeconds: not below the highest number wanted within this time."""
_UP_TIMES, _UP_PODS = 2, 4
"""behavior.scaleUp: within 15 s to twice as many pods, or four more."""
_COOLDOWN_S = 300
"""ScaledObject.spec.cooldownPeriod: to zero after this time without activity."""


@dataclass(slots=True)
class Autoscaler:
    """The autoscaler; `most` is maxReplicaCount."""

    most: int
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)
    _active_s: float = 0.0

    def sync(self, replicas: int, metric: float, target: float, now_s: float) -> int:
        """One sync of the autoscaler with a metric of type AverageValue. It does nothing at zero replicas."""
        if not replicas:
            self._wanted.clear()
            return 0
        within = abs(metric / (target * replicas) - 1) <= _TOLERANCE
        wanted = replicas if within else math.ceil(metric / target)
        wanted = max(1, min(self.most, wanted))
        self._wanted.append((now_s, wanted))
        while self._wanted[0][0] <= now_s - _STABLE_S:
            self._wanted.popleft()
        if wanted < replicas:
            return min(replicas, max(number for _, number in self._wanted))
        return min(wanted, max(_UP_TIMES * replicas, replicas + _UP_PODS))

    def poll(self, replicas: int, now_s: float, *, active: bool) -> int:
        """One poll of KEDA: from zero to one replica, and to zero."""
        if active:
            self._active_s = now_s
            return max(1, replicas)
        return 0 if now_s - self._active_s > _COOLDOWN_S else replicas
