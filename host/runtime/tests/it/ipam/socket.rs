//! The socket: which clients it accepts, which errors it survives, and its removal.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use trueup_worlds::ipam::{self, Event};

use super::host::{GUARD, Stage, eni, request};

struct Listening {
    socket: PathBuf,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), String>>,
}

fn stage() -> Stage {
    let addresses: Vec<String> = (0..250).map(|n| format!("10.0.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    Stage::new(&[eni("eni-1", 1, &addresses)])
}

/// A listening host, or why it does not listen.
async fn listen(stage: &Stage) -> Result<Listening, String> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, mut told) = mpsc::unbounded_channel();
    let of = stage.serving(stage.instances());
    let socket = of.settings.socket.clone();
    let serving = tokio::spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        let served = ipam::serve(of, stop, move |event| {
            let _ = tell.send(event);
        });
        served.await.map_err(|error| error.to_string())
    });
    let listening = async {
        while let Some(event) = told.recv().await {
            if matches!(event, Event::Listening { .. }) {
                return true;
            }
        }
        false
    };
    if tokio::time::timeout(GUARD, listening).await.unwrap() {
        Ok(Listening { socket, stop, serving })
    } else {
        Err(serving.await.unwrap().unwrap_err())
    }
}

impl Listening {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(GUARD, self.serving)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(!self.socket.exists());
    }
}

async fn exchange(socket: &Path, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    // The host may answer and close the connection before it has read all of an oversized request.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(GUARD, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    // After the answer, unread data causes a connection error.
    assert!(
        read.as_ref()
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
        "{read:?}"
    );
    assert_eq!(answer.pop(), Some(b'\n'));
    serde_json::from_slice(&answer).unwrap()
}

async fn ask(socket: &Path, request: &Value) -> Value {
    exchange(socket, format!("{request}\n").as_bytes()).await
}

#[tokio::test]
async fn it_is_the_users_alone_and_gone_after_the_stop() {
    let stage = stage();
    let host = listen(&stage).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&host.socket), 0o600);
    assert_eq!(mode(host.socket.parent().unwrap()), 0o700);
    let added = ask(&host.socket, &request("ADD", "c1")).await;
    assert_eq!(added, json!({"v":1,"ok":{"ip":"10.0.0.0","deviceNumber":1}}));
    let shown = ipam::show(&host.socket, None).await.unwrap();
    assert_eq!(
        (shown.read, shown.stats.assigned, shown.stats.addresses),
        (true, 1, 250)
    );
    assert_eq!(shown.guest.name, "ipam");
    let error = ipam::show(&host.socket, Some("other")).await.unwrap_err();
    assert!(
        error.ends_with("this host has no instance `other`; it has `pods`"),
        "{error}"
    );
    let socket = host.socket.clone();
    host.stop().await;
    assert!(ipam::show(&socket, None).await.is_err());
    stage.replay_all().await;
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_serves_on() {
    let stage = stage();
    let host = listen(&stage).await.unwrap();
    for (bytes, code) in [
        (b"\n".to_vec(), 6),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 6),
        (b"{\"v\":2}\n".to_vec(), 5),
        (b"\xff\xfe\n".to_vec(), 6),
        (vec![b' '; (1 << 20) + 10], 6),
    ] {
        let answer = exchange(&host.socket, &bytes).await;
        assert_eq!(answer["error"]["code"], json!(code), "{answer}");
    }
    let mut line = request("ADD", "c1").to_string();
    line.push_str(&" ".repeat((1 << 20) - line.len() - 1));
    line.push('\n');
    assert!(
        exchange(&host.socket, line.as_bytes()).await["ok"]["ip"].is_string(),
        "just not too long"
    );
    host.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_changes_nothing_and_hundreds_wait() {
    let stage = stage();
    let host = listen(&stage).await.unwrap();
    ask(&host.socket, &request("ADD", "first")).await;
    let gate = stage.disk.gate.lock().await;
    // One client connects and stays silent, one leaves before the answer, and one waits for it.
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(UnixStream::connect(&host.socket).await.unwrap());
    }
    for n in 0..20 {
        let mut gone = UnixStream::connect(&host.socket).await.unwrap();
        gone.write_all(format!("{}\n", request("ADD", &format!("gone-{n}"))).as_bytes())
            .await
            .unwrap();
    }
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..150 {
        let socket = host.socket.clone();
        waiting.spawn(async move { ask(&socket, &request("ADD", &format!("c{n}"))).await });
    }
    while !(0..20).all(|n| stage.disk.text().contains(&format!("gone-{n}")))
        || !(0..150).all(|n| stage.disk.text().contains(&format!("c{n}\\")))
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(waiting.try_join_next().is_none());
    drop(gate);
    let mut given = std::collections::BTreeSet::new();
    while let Some(answer) = waiting.join_next().await {
        assert!(given.insert(answer.unwrap()["ok"]["ip"].to_string()));
    }
    assert_eq!(given.len(), 150);
    let again = ask(&host.socket, &request("CHECK", "gone-7")).await;
    assert_eq!(
        ask(&host.socket, &request("ADD", "gone-7")).await,
        again,
        "it was carried out"
    );
    drop(silent);
    host.stop().await;
}

#[tokio::test]
async fn only_the_socket_of_a_host_that_is_gone_is_replaced() {
    let stage = stage();
    let socket = stage.settings().socket;
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
    let host = listen(&stage).await.unwrap();
    let error = listen(&stage).await.err().unwrap();
    assert!(error.contains("another host serves there"), "{error}");
    assert!(
        ask(&socket, &request("ADD", "c1")).await["ok"]["ip"].is_string(),
        "untouched"
    );
    host.stop().await;

    let foreign = UnixListener::bind(&socket).unwrap();
    let error = listen(&stage).await.err().unwrap();
    assert!(error.contains("another host serves there"), "{error}");
    assert!(socket.exists());
    drop(foreign);
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "mine").unwrap();
    let error = listen(&stage).await.err().unwrap();
    assert!(error.contains("something else is there"), "{error}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "mine");
}

#[tokio::test]
async fn requests_that_wait_at_the_stop_are_answered() {
    let stage = stage();
    let host = listen(&stage).await.unwrap();
    ask(&host.socket, &request("ADD", "first")).await;
    let gate = stage.disk.gate.lock().await;
    let socket = host.socket.clone();
    let waiting = tokio::spawn(async move { ask(&socket, &request("ADD", "c1")).await });
    while !stage.disk.text().contains("c1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stopping = tokio::spawn(host.stop());
    drop(gate);
    assert!(waiting.await.unwrap()["ok"]["ip"].is_string());
    stopping.await.unwrap();
}
