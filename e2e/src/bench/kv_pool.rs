//! The pool that the `kv.*` names are measured on: two agents, one tenant without a limit.

/// Its pool file.
pub(super) const POOL: &str = "\
apiVersion: larder.dev/v1alpha1
kind: CachePool
metadata: {name: bench}
spec:
  masters: {replicas: 1}
  nodes: {count: 2}
  tiers: [{name: dram, medium: Dram, size: 1Gi, slabSize: 64Mi}]
  placement: {replicaFactor: 1}
---
apiVersion: larder.dev/v1alpha1
kind: CacheTenant
metadata: {name: bench}
spec:
  poolRef: {name: bench}
  tenantId: bench
";
