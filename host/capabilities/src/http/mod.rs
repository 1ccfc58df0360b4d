//! How backends speak HTTP: one client over connections that write nothing once this host may not act any more.
//!
//! Repeats nothing, and knows of no API: what an answer means is each backend's business (`lbaas/anexia`, `neg/compute`).
//!
//! ```text
//! client (one request within its time and the lease's) -> connector (proxy, TLS) -> socket (each write)
//! ```

pub(crate) mod client;
pub(crate) mod connector;
pub(crate) mod limit;
pub(crate) mod socket;

/// The text without the secret: servers and proxies echo requests in their errors, some as JSON within the text.
pub(crate) fn scrub(secret: &str, text: String) -> String {
    if secret.is_empty() {
        return text;
    }
    let quoted = serde_json::Value::from(secret).to_string();
    let within_json = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(&quoted);
    // The escaped one first: it may hold the plain one.
    [within_json, secret].into_iter().fold(text, |text, secret| {
        if text.contains(secret) {
            text.replace(secret, "***")
        } else {
            text
        }
    })
}
