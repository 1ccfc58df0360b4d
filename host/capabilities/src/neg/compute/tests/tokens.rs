//! The sources of tokens.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::*;
use crate::neg::Error;

/// A server that accepts only one token, and a backend with these credentials.
async fn ask(token: &str, credentials: Credentials) -> Result<Vec<Endpoint>, Error> {
    let world = World::new(json!({"token": token})).await;
    world.given(&[]).await;
    let (compute, _ends) = Compute::new(settings(&world.server), credentials, in_memory(), Fence::open()).unwrap();
    compute.of("i").list_endpoints(&web()).await
}

/// Serves on a free port until the runtime ends.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind(LOCAL).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    url
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized_and_never_shown() {
    assert_eq!(
        ask("right", Credentials::fixed("wrong").unwrap()).await,
        Err(Error::Unauthorized)
    );
    assert_eq!(ask("right", Credentials::fixed(" right\n").unwrap()).await, Ok(vec![]));
    for token in ["", "two words", "ä"] {
        let error = Credentials::fixed(token).unwrap_err().to_string();
        assert!(
            error.starts_with("the token ") && (token.is_empty() || !error.contains(token)),
            "{error}"
        );
    }
    assert!(!format!("{:?}", Credentials::fixed("secret").unwrap()).contains("secret"));
}

#[tokio::test]
async fn a_token_file_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let missing = ask("right", Credentials::token_file(&path)).await.unwrap_err();
    assert!(matches!(missing, Error::Unavailable(text) if text.contains("the token file")));
    std::fs::write(&path, "right\n").unwrap();
    assert_eq!(ask("right", Credentials::token_file(&path)).await, Ok(vec![]));
}

#[tokio::test]
async fn the_metadata_server_is_asked_with_its_header() {
    let token = async |headers: HeaderMap| {
        let flavor = headers.get("Metadata-Flavor").map(|value| value.as_bytes());
        assert_eq!(flavor, Some(b"Google".as_slice()));
        Json(json!({"access_token": "from-metadata", "expires_in": 3_600, "token_type": "Bearer"}))
    };
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    let url = serve(Router::new().route(path, get(token))).await;
    let credentials = Credentials::metadata_server(Some(&url));
    assert_eq!(ask("from-metadata", credentials).await, Ok(vec![]));
}

/// Runs `openssl` and returns its output.
fn openssl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(args).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("openssl: {error}: `apt-get install openssl`"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A service account's key with a private key of its own.
fn key_file(folder: &Path, token_uri: &str) -> std::path::PathBuf {
    let key = openssl(&[
        "genpkey",
        "-quiet",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
    ]);
    std::fs::write(folder.join("private.pem"), &key).unwrap();
    let json = json!({"type": "service_account", "client_email": "robot@p.example", "token_uri": token_uri,
                      "private_key": String::from_utf8(key).unwrap(), "private_key_id": "k1"});
    let path = folder.join("key.json");
    std::fs::write(&path, json.to_string()).unwrap();
    path
}

#[tokio::test]
async fn a_service_accounts_key_gives_a_token_that_is_kept_until_refused() {
    let posted: Arc<Mutex<Vec<BTreeMap<String, String>>>> = Arc::default();
    let seen = Arc::clone(&posted);
    let exchange = async move |body: String| {
        let form = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let mut posted = seen.lock().unwrap();
        posted.push(form);
        Json(json!({"access_token": format!("token-{}", posted.len()), "expires_in": 3_600, "token_type": "Bearer"}))
    };
    let url = serve(Router::new().route("/token", post(exchange))).await;
    let folder = tempfile::tempdir().unwrap();
    let token_uri = format!("{url}/token");
    let credentials = Credentials::credentials_file(&key_file(folder.path(), &token_uri)).unwrap();

    // The first token is refused; the second is fetched and kept.
    let world = World::new(json!({"token": "token-2"})).await;
    world.given(&[]).await;
    let (compute, _ends) = Compute::new(settings(&world.server), credentials, in_memory(), Fence::open()).unwrap();
    for _ in 0..3 {
        assert_eq!(compute.of("i").list_endpoints(&web()).await, Ok(vec![]));
    }
    let posted = posted.lock().unwrap().clone();
    assert_eq!(posted.len(), 2);
    assert_eq!(posted[0]["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");

    let statement: Vec<_> = posted[0]["assertion"].split('.').collect();
    let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).unwrap();
    let header: Value = serde_json::from_slice(&decode(statement[0])).unwrap();
    assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    let claims: Value = serde_json::from_slice(&decode(statement[1])).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["scope"], &claims["aud"]),
        (
            &json!("robot@p.example"),
            &json!("https://www.googleapis.com/auth/compute"),
            &json!(token_uri)
        )
    );
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3_600);

    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("signed"), format!("{}.{}", statement[0], statement[1])).unwrap();
    std::fs::write(file("signature"), decode(statement[2])).unwrap();
    openssl(&[
        "pkey",
        "-in",
        &file("private.pem"),
        "-pubout",
        "-out",
        &file("public.pem"),
    ]);
    openssl(&[
        "dgst",
        "-sha256",
        "-verify",
        &file("public.pem"),
        "-signature",
        &file("signature"),
        &file("signed"),
    ]);
}

#[tokio::test]
async fn an_exchange_that_fails_says_why_without_the_statement() {
    let refuse = async || {
        let body = json!({"error": "invalid_grant", "error_description": "account not found"});
        (StatusCode::BAD_REQUEST, Json(body))
    };
    let url = serve(Router::new().route("/token", post(refuse))).await;
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), &format!("{url}/token"));
    let error = ask("t", Credentials::credentials_file(&key).unwrap())
        .await
        .unwrap_err();
    let expected = format!("no token from {url}/token: HTTP 400 invalid_grant account not found");
    assert!(
        matches!(&error, Error::Unavailable(text) if text.ends_with(&expected)),
        "{error:?}"
    );
}

#[test]
fn a_file_that_holds_no_credentials_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    assert!(
        Credentials::credentials_file(&path)
            .unwrap_err()
            .to_string()
            .contains("key.json`")
    );
    for (text, reason) in [
        ("x", "is no JSON"),
        ("{}", "has no `type`"),
        (r#"{"type": "service_account"}"#, "has no `client_email`"),
        (
            r#"{"type": "service_account", "client_email": "e", "token_uri": "ftp://x"}"#,
            "must begin with `http",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Credentials::credentials_file(&path).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
