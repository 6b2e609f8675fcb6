//! Network namespaces, probers, policy generators and a second reading of manifests, for tests.
