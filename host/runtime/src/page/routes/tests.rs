//! The routes over HTTP.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

#[tokio::test]
async fn the_page_stands_under_any_prefix() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/healthz", get(async || "well"));
    let routes = under("/ui", Source::new(Vec::new(), None), routes);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let ask = async |path: &str, host: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let page = ask("/ui", "localhost").await;
    assert!(
        page.starts_with("HTTP/1.0 200") && page.contains("<base href=\"/ui/\">"),
        "{page}"
    );
    let moved = ask("/ui/", "localhost").await;
    assert!(
        moved.starts_with("HTTP/1.0 308") && moved.contains("location: /ui\r\n"),
        "{moved}"
    );
    for path in ["/ui/page.js", "/ui/page.css", "/ui/icon.svg", "/ui/api/recordings"] {
        assert!(ask(path, "localhost").await.starts_with("HTTP/1.0 200"), "{path}");
    }
    assert!(ask("/ui/nothing", "localhost").await.starts_with("HTTP/1.0 404"));
    let unknown = ask("/ui/api/rows?r=nothing", "localhost").await;
    assert!(
        unknown.starts_with("HTTP/1.0 404") && unknown.contains("there is no recording `nothing`"),
        "{unknown}"
    );
    assert!(ask("/ui", "evil.example").await.starts_with("HTTP/1.0 403"));
    // The other routes keep their own rules.
    assert!(ask("/healthz", "evil.example").await.starts_with("HTTP/1.0 200"));
}
