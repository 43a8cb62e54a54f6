//! A pooler that lends one server session to all clients, one request at a time, as transaction pooling does.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// The only session, and the server's first messages.
struct Session {
    server: TcpStream,
    greeting: Vec<u8>,
}

/// Starts a pooler for the server on this port; returns its own port.
pub(crate) async fn before(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let session: Arc<Mutex<Option<Session>>> = Arc::default();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(lend(client, session.clone(), port));
        }
    });
    own
}

async fn lend(mut client: TcpStream, session: Arc<Mutex<Option<Session>>>, port: u16) -> Option<()> {
    let mut startup = vec![0; 4];
    client.read_exact(&mut startup).await.ok()?;
    let length = u32::from_be_bytes(startup[..4].try_into().unwrap()) as usize;
    startup.resize(length, 0);
    client.read_exact(&mut startup[4..]).await.ok()?;
    let greeting = {
        let mut held = session.lock().await;
        if held.is_none() {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            server.write_all(&startup).await.ok()?;
            let greeting = answer(&mut server).await?;
            *held = Some(Session { server, greeting });
        }
        held.as_ref()?.greeting.clone()
    };
    client.write_all(&greeting).await.ok()?;
    loop {
        let question = question(&mut client).await?;
        let mut held = session.lock().await;
        let server = &mut held.as_mut()?.server;
        server.write_all(&question).await.ok()?;
        let said = answer(server).await?;
        client.write_all(&said).await.ok()?;
    }
}

/// Reads messages up to the one that the server answers with "ready". `None`: the client disconnects; the session
/// stays.
async fn question(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let kind = message(client, &mut all).await?;
        match kind {
            b'X' => return None,
            b'S' | b'Q' => return Some(all),
            _ => {}
        }
    }
}

/// Reads one message; returns its type.
async fn message(from: &mut TcpStream, all: &mut Vec<u8>) -> Option<u8> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    from.read_exact(&mut rest).await.ok()?;
    all.extend_from_slice(&head);
    all.extend_from_slice(&rest);
    Some(head[0])
}

/// Reads messages up to the server's "ready".
async fn answer(server: &mut TcpStream) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while message(server, &mut all).await? != b'Z' {}
    Some(all)
}
