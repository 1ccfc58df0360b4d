//! The names of all metrics.

/// Transactions that the packet filter took.
pub const TRANSACTIONS: &str = "nftables_transactions_total";
