//! Refusals with etcd's own words and codes.

use tonic::Status;

pub(crate) fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

pub(crate) fn future_revision() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision is a future revision")
}

pub(crate) fn lease_not_found() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

pub(crate) fn lease_exists() -> Status {
    Status::failed_precondition("etcdserver: lease already exists")
}

pub(crate) fn ttl_too_large() -> Status {
    Status::out_of_range("etcdserver: too large lease TTL")
}

pub(crate) fn empty_key() -> Status {
    Status::invalid_argument("etcdserver: key is not provided")
}

pub(crate) fn value_provided() -> Status {
    Status::invalid_argument("etcdserver: value is provided")
}

pub(crate) fn lease_provided() -> Status {
    Status::invalid_argument("etcdserver: lease is provided")
}

pub(crate) fn key_not_found() -> Status {
    Status::invalid_argument("etcdserver: key not found")
}

pub(crate) fn too_many_operations() -> Status {
    Status::invalid_argument("etcdserver: too many operations in txn request")
}

pub(crate) fn duplicate_key() -> Status {
    Status::invalid_argument("etcdserver: duplicate key given in txn request")
}

pub(crate) fn request_too_large() -> Status {
    Status::invalid_argument("etcdserver: request is too large")
}

pub(crate) fn message_too_large(bytes: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: received message larger than max ({bytes} vs. {limit})"
    ))
}

pub(crate) fn not_offered(what: &str) -> Status {
    Status::unimplemented(format!("the embedded etcd does not offer {what}"))
}
