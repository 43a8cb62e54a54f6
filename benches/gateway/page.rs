//! An open dashboard: requests what the overview requests, and follows the live stream, as the page does. It reads and
//! discards the data; what a browser does with it costs time on the client's machine.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How often the page renders at most.
const LOOKS: Duration = Duration::from_secs(2);
/// How long it waits before it reconnects after a `missed` event.
const WAIT: Duration = Duration::from_millis(500);

/// A page that is open until it is dropped.
pub struct Page([JoinHandle<()>; 2]);

impl Page {
    pub fn open(admin: SocketAddr) -> Self {
        let follows = tokio::spawn(async move {
            loop {
                ask(admin, "/api/live?output=0&few=1").await;
                tokio::time::sleep(WAIT).await;
            }
        });
        let looks = tokio::spawn(async move {
            loop {
                assert!(ask(admin, "/api/overview?window=1h").await > 1000, "the overview is complete");
                tokio::time::sleep(LOOKS).await;
            }
        });
        Self([follows, looks])
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Reads until the response ends; returns its length.
async fn ask(admin: SocketAddr, path: &str) -> usize {
    let mut stream = TcpStream::connect(admin).await.expect("the admin port takes connections");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let (mut all, mut scrap) = (0, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut scrap).await {
            Ok(0) | Err(_) => return all,
            Ok(read) => all += read,
        }
    }
}
