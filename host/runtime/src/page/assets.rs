//! The page itself: its files, which are part of the program.

use axum::extract::NestedPath;
use axum::extract::rejection::NestedPathRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("assets/index.html");

/// The files of the page: name, type, text.
pub(super) const FILES: [(&str, &str, &str); 8] = [
    ("/page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
    ("/page.js", JAVASCRIPT, include_str!("assets/page.js")),
    ("/list.js", JAVASCRIPT, include_str!("assets/list.js")),
    ("/detail.js", JAVASCRIPT, include_str!("assets/detail.js")),
    ("/status.js", JAVASCRIPT, include_str!("assets/status.js")),
    ("/json.js", JAVASCRIPT, include_str!("assets/json.js")),
    ("/basics.js", JAVASCRIPT, include_str!("assets/basics.js")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Addresses on the page are relative to its folder. Under a prefix without a trailing `/`, the page states the prefix.
/// It is taken from the routes, not from the request.
pub(super) async fn page(prefix: Result<NestedPath, NestedPathRejection>) -> Response {
    let base = |prefix: NestedPath| format!("\n<base href=\"{}/\">", prefix.as_str().trim_end_matches('/'));
    let base = prefix.map(base).unwrap_or_default();
    let page = PAGE.replacen("<head>", &format!("<head>{base}"), 1);
    file("text/html; charset=utf-8", page)
}

/// One of [`FILES`], or the page.
pub(super) fn file(kind: &'static str, text: impl IntoResponse) -> Response {
    // Another version of trueup may have another page at this address.
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}
