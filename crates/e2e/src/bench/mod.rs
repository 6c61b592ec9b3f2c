//! What the benches share: figures with their bars, the machine, publishers, and the cluster as its
//! records, its metrics and its disks show it.

pub mod figures;
pub mod growth;
pub mod machine;
pub mod meters;
pub mod publishers;
pub mod records;
