//! Every text that etcd and the transport were seen to answer with, and what it means.

use tonic::Status;

use super::*;

fn judged(code: Code, message: &str) -> (ErrorClass, bool) {
    let error = StoreError::classify(EtcdError::GRpcStatus(Status::new(code, message)));
    (error.class, error.maybe_applied())
}

#[test]
fn the_text_decides_and_then_the_code() {
    use ErrorClass::*;
    let cases = [
        // One code, three meanings.
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            Compacted,
            false,
        ),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
            Compacted,
            false,
        ),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 6001526 bytes, the limit is: 4194304 bytes",
            TooLarge,
            false,
        ),
        (Code::InvalidArgument, "etcdserver: request is too large", TooLarge, false),
        (
            Code::ResourceExhausted,
            "grpc: received message larger than max (2200000 vs. 2097152)",
            TooLarge,
            false,
        ),
        (Code::InvalidArgument, "etcdserver: too many operations in txn request", TooLarge, false),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", NoSpace, false),
        (Code::NotFound, "etcdserver: requested lease not found", LeaseGone, false),
        // Refused before anything is done, although the code says nothing of the kind.
        (Code::Unknown, "etcdserver: too many requests", Busy, false),
        (Code::ResourceExhausted, "etcdserver: too many requests", Busy, false),
        (Code::Unauthenticated, "etcdserver: invalid auth token", Auth, false),
        (Code::Unknown, "etcdserver: invalid auth token", Auth, false),
        (Code::InvalidArgument, "etcdserver: revision of auth store is old", Auth, false),
        (
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password",
            Auth,
            false,
        ),
        (Code::InvalidArgument, "etcdserver: user name is empty", Auth, false),
        (Code::PermissionDenied, "etcdserver: permission denied", Fatal, false),
        (Code::InvalidArgument, "etcdserver: key is not provided", Fatal, false),
        (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", Fatal, false),
        (Code::Unimplemented, "unknown service", Fatal, false),
        // From here on a write may have been made.
        (Code::Unavailable, "etcdserver: request timed out", Unavailable, true),
        (Code::Unavailable, "etcdserver: no leader", Unavailable, true),
        (Code::Unavailable, "etcdserver: leader changed", Unavailable, true),
        (Code::Unavailable, "http2 error", Unavailable, true),
        (Code::Cancelled, "Timeout expired", Unavailable, true),
        (Code::Cancelled, "operation was canceled", Unavailable, true),
        (
            Code::Unknown,
            "h2 protocol error: error reading a body from connection",
            Unavailable,
            true,
        ),
        (Code::Unknown, "transport error", Unavailable, true),
        (Code::DeadlineExceeded, "", Unavailable, true),
        (Code::Internal, "", Unavailable, true),
        // Not when there never was a connection.
        (Code::Unavailable, "tcp connect error", Unavailable, false),
        (Code::Unavailable, "invalid peer certificate: UnknownIssuer", Unavailable, false),
    ];
    for (code, message, class, maybe_applied) in cases {
        assert_eq!(judged(code, message), (class, maybe_applied), "{code:?} {message}");
    }
}

#[test]
fn errors_of_the_client_library_are_judged_too() {
    let keep_alive =
        |text: &str| StoreError::classify(EtcdError::LeaseKeepAliveError(text.to_owned())).class;
    assert_eq!(keep_alive("lease not found"), ErrorClass::LeaseGone);
    assert_eq!(keep_alive("channel closed"), ErrorClass::Unavailable);
    let watch = StoreError::classify(EtcdError::WatchError("channel closed".to_owned()));
    assert_eq!(watch.class, ErrorClass::Unavailable);
    let url = StoreError::classify(EtcdError::InvalidArgs("empty endpoints".to_owned()));
    assert_eq!(url.class, ErrorClass::Fatal);
}

#[test]
fn our_own_limit_may_hide_an_applied_write() {
    let error = StoreError::timed_out(std::time::Duration::from_secs(2));
    assert!(error.maybe_applied());
    assert_eq!(error.to_string(), "etcd: no answer within 2000 ms (unavailable)");
}
