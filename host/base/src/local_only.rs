//! HTTP for this machine alone: which addresses a server may listen on, and which requests come from a foreign page.
//!
//! Knows nothing of what is served. Used by everything that trueup serves over HTTP on loopback.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// A page may load only from its own origin, and no page may frame it. Styles that scripts set on elements are not
/// inline styles.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                           connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";

/// Checks that the address is on loopback.
///
/// # Errors
/// One line: the address, and what it must be.
pub fn must_be_loopback(address: SocketAddr) -> Result<(), String> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "can't listen on `{address}`: what it shows is for this machine alone; listen on `127.0.0.1:{port}` or `[::1]:{port}`",
        port = address.port()
    ))
}

/// Middleware for an address on loopback. It refuses requests whose `Host` is not a name of loopback: else a foreign
/// page whose name resolves to 127.0.0.1 (DNS rebinding) could read everything. It admits `GET` and `HEAD` alone, and
/// sets the headers that limit what browsers do with the answer ([`secure`]).
pub async fn guard(request: Request, next: Next) -> Response {
    let method = request.method();
    let mut response = match check_host(request.headers()) {
        Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
        Ok(()) if !matches!(*method, Method::GET | Method::HEAD) => {
            let why = format!("`{method}` is not allowed here: nothing can be changed, `GET` it\n");
            (StatusCode::METHOD_NOT_ALLOWED, why).into_response()
        }
        Ok(()) => next.run(request).await,
    };
    secure(response.headers_mut());
    response
}

/// The header in which a browser names the page's relation to this server. A foreign page can't read the answer, but it
/// can make the server compute it.
const FROM_WHERE: &str = "sec-fetch-site";

/// Checks that a request names loopback as its host and does not come from a foreign page.
///
/// # Errors
/// One line: the host that it named, and what it must name.
pub fn check_host(headers: &HeaderMap) -> Result<(), String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    let named = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let from_where = headers.get(FROM_WHERE);
    if from_where.is_some_and(|site| site.as_bytes() == b"cross-site") {
        let why = "asked by a page of another site: this is for this machine alone; open its address yourself";
        return Err(why.to_owned());
    }
    if more.is_none() && is_loopback_host(named) {
        return Ok(());
    }
    Err(format!(
        "asked as `{}`: this is for this machine alone; ask as `localhost`, `127.0.0.1` or `[::1]`",
        named.escape_default()
    ))
}

/// Middleware for paths that need no token and may change something: see [`check_host`].
pub async fn for_this_machine(request: Request, next: Next) -> Response {
    match check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
    }
}

fn is_loopback_host(named: &str) -> bool {
    let Ok(authority) = named.parse::<Authority>() else {
        return false;
    };
    // `user@host` is not a valid `Host`.
    if named.contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Sets the headers that tell browsers what they may do with an answer.
pub fn secure(headers: &mut HeaderMap) {
    let of_origin = |name| (header::HeaderName::from_static(name), "same-origin");
    let values = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        of_origin("cross-origin-resource-policy"),
        of_origin("cross-origin-opener-policy"),
    ];
    for (name, value) in values {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_as(host: &str) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        check_host(&headers)
    }

    #[test]
    fn only_loopback_is_listened_on() {
        for address in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:9480"] {
            must_be_loopback(address.parse().unwrap()).unwrap();
        }
        for address in ["0.0.0.0:9480", "192.0.2.1:80", "[::]:1", "[2001:db8::1]:1"] {
            let why = must_be_loopback(address.parse().unwrap()).unwrap_err();
            assert!(why.contains(address) && why.lines().count() == 1, "{why}");
        }
    }

    #[test]
    fn only_loopbacks_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]:80",
            "[::1]",
        ] {
            assert_eq!(asked_as(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "192.0.2.1",
            "0.0.0.0",
            "a@localhost",
            "",
            "localhost:80:80",
            "localhost/",
        ] {
            assert!(asked_as(host).is_err(), "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        for (site, is_refused) in [("cross-site", true), ("same-origin", false), ("none", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("localhost"));
            headers.insert(FROM_WHERE, HeaderValue::from_static(site));
            assert_eq!(check_host(&headers).is_err(), is_refused, "{site}");
        }
    }

    #[test]
    fn two_hosts_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, HeaderValue::from_static("localhost"));
        headers.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(check_host(&headers).is_err());
    }
}
