//! gRPC services and messages of Evenkeel, and their conversions to the model.

pub mod convert;
pub mod refusal;

/// Administration, served by the load manager.
pub mod admin {
    #![expect(clippy::too_many_lines, reason = "generated")]
    tonic::include_proto!("evenkeel.admin.v1");
}

/// Bulk copies between brokers.
pub mod copy {
    #![expect(clippy::too_many_lines, reason = "generated")]
    tonic::include_proto!("evenkeel.copy.v1");
}

/// Clients' data, served by the brokers.
pub mod data {
    #![expect(clippy::too_many_lines, reason = "generated")]
    tonic::include_proto!("evenkeel.data.v1");
}

/// The migrator's sessions and questions.
pub mod migrations {
    #![expect(clippy::too_many_lines, reason = "generated")]
    tonic::include_proto!("evenkeel.migrations.v1");
}

/// Replication between brokers.
pub mod replication {
    #![expect(clippy::too_many_lines, reason = "generated")]
    tonic::include_proto!("evenkeel.replication.v1");
}

/// Encoded descriptors of every service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
