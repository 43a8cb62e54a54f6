//! The load: a closed loop over kept connections. Each sends, waits for its response, and sends the next.

use super::deck::{Deck, Repeats};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Concurrent connections, unless said otherwise.
pub const CONNECTIONS: usize = 32;

/// What to send.
#[derive(Clone, Copy)]
pub struct Round {
    pub to: SocketAddr,
    pub repeats: Repeats,
    /// The number of the first delivery.
    pub from: u64,
    /// Maximum number of distinct deliveries.
    pub room: u64,
    pub lasts: Duration,
    /// Concurrent connections.
    pub connections: usize,
}

/// The result of a round.
#[derive(Default)]
pub struct LoadResult {
    /// Responses by status: 200, 202, any other.
    pub fine: u64,
    pub accepted: u64,
    pub other: u64,
    /// How many distinct deliveries were sent.
    pub distinct: u64,
    /// The latency of each response, in microseconds, sorted.
    pub waits: Vec<u32>,
    /// When each response came after the begin of the round, and its latency, in microseconds.
    pub timeline: Vec<(u32, u32)>,
    pub took: Duration,
}

impl LoadResult {
    pub fn answers(&self) -> u64 {
        self.fine + self.accepted + self.other
    }

    pub fn rate(&self) -> f64 {
        self.answers() as f64 / self.took.as_secs_f64()
    }

    /// The latency that this share of the responses did not exceed, in milliseconds.
    pub fn wait(&self, share: f64) -> f64 {
        let at = (self.waits.len() as f64 * share) as usize;
        self.waits.get(at.min(self.waits.len().saturating_sub(1))).map_or(0.0, |wait| f64::from(*wait) / 1000.0)
    }

    fn count(&mut self, status: u16) {
        match status {
            200 => self.fine += 1,
            202 => self.accepted += 1,
            _ => self.other += 1,
        }
    }
}

/// Connects, and sends until the time is up.
pub async fn run(deck: &Arc<Deck>, round: Round) -> LoadResult {
    let turns = Arc::new(AtomicU64::new(0));
    let mut streams = Vec::with_capacity(round.connections);
    for _ in 0..round.connections {
        streams.push(TcpStream::connect(round.to).await.expect("the server takes connections"));
    }
    let begun = Instant::now();
    let converse = |stream| tokio::spawn(converse(stream, deck.clone(), round, turns.clone(), begun));
    let connections: Vec<_> = streams.into_iter().map(converse).collect();
    let mut all = LoadResult::default();
    for connection in connections {
        let result = connection.await.expect("a connection ends well");
        all.fine += result.fine;
        all.accepted += result.accepted;
        all.other += result.other;
        all.timeline.extend(result.timeline);
    }
    all.took = begun.elapsed();
    all.waits = all.timeline.iter().map(|(_, wait)| *wait).collect();
    all.waits.sort_unstable();
    // Every turn that was taken was also sent.
    all.distinct = round.repeats.distinct(all.answers());
    all
}

async fn converse(
    mut stream: TcpStream,
    deck: Arc<Deck>,
    round: Round,
    turns: Arc<AtomicU64>,
    begun: Instant,
) -> LoadResult {
    stream.set_nodelay(true).expect("a fresh socket");
    let mut request = deck.request();
    let mut answer = vec![0; 4096];
    let mut result = LoadResult::default();
    while begun.elapsed() < round.lasts {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        let number = round.repeats.number(turn).min(round.room - 1);
        deck.fill(&mut request, round.from + number);
        let sent = Instant::now();
        stream.write_all(&request.bytes).await.expect("the server reads");
        result.count(status(&mut stream, &mut answer).await);
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        result.timeline.push((micros(begun.elapsed()), micros(sent.elapsed())));
    }
    result
}

/// Many copies of each of a few deliveries, all at once: how many of each were new.
pub async fn storm(deck: &Arc<Deck>, to: SocketAddr, from: u64, distinct: u64, copies: u64) -> LoadResult {
    let turns = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (deck, turns) = (deck.clone(), turns.clone());
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(to).await.expect("the server takes connections");
                let mut request = deck.request();
                let mut answer = vec![0; 4096];
                let mut result = LoadResult::default();
                loop {
                    let turn = turns.fetch_add(1, Ordering::Relaxed);
                    if turn >= distinct * copies {
                        return result;
                    }
                    deck.fill(&mut request, from + turn % distinct);
                    stream.write_all(&request.bytes).await.expect("the server reads");
                    result.count(status(&mut stream, &mut answer).await);
                }
            })
        })
        .collect();
    let mut all = LoadResult { distinct, ..LoadResult::default() };
    for connection in connections {
        let result = connection.await.expect("a connection ends well");
        all.fine += result.fine;
        all.accepted += result.accepted;
        all.other += result.other;
    }
    all.took = begun.elapsed();
    all
}

/// Reads one whole response.
async fn status(stream: &mut TcpStream, buffer: &mut [u8]) -> u16 {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await.expect("the server answers");
        assert!(read > 0, "the server hung up: {:?}", String::from_utf8_lossy(&buffer[..filled]));
        filled += read;
        let there = &buffer[..filled];
        let Some(head) = there.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        if filled >= head + 4 + length(&there[..head]) {
            return std::str::from_utf8(&there[9..12]).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        }
    }
}

fn length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length: ";
    let Some(at) = head.windows(NAME.len()).position(|name| name.eq_ignore_ascii_case(NAME)) else { return 0 };
    head[at + NAME.len()..].iter().take_while(|b| b.is_ascii_digit()).fold(0, |sum, b| sum * 10 + usize::from(b - b'0'))
}
