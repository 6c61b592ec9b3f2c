//! Channels to brokers, one per address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::ClientError;

/// Makes a channel to `host:port`. It must not block: the connection is made on first use.
pub type Connect = Arc<dyn Fn(&str) -> Result<Channel, ClientError> + Send + Sync>;

/// Channels over TCP. A silent peer is found out by pings within ten seconds.
pub fn tcp() -> Connect {
    Arc::new(|address| {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| ClientError::BadAddress { address: address.to_owned() })?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(1))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(8 << 20)
            .connect_lazy())
    })
}

/// Brokers that a client knows of, and its channels to them.
pub(crate) struct Brokers {
    connect: Connect,
    state: Mutex<State>,
}

struct State {
    addresses: Vec<String>,
    cursor: usize,
    channels: BTreeMap<String, Channel>,
}

impl Brokers {
    pub(crate) fn new(bootstrap: &[String], connect: Connect) -> Result<Self, ClientError> {
        if bootstrap.is_empty() {
            return Err(ClientError::NoAddress);
        }
        for address in bootstrap {
            check(address)?;
        }
        let state = State { addresses: bootstrap.to_vec(), cursor: 0, channels: BTreeMap::new() };
        Ok(Self { connect, state: Mutex::new(state) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel to one broker, which is remembered.
    pub(crate) fn channel(&self, address: &str) -> Result<Channel, ClientError> {
        let mut state = self.state();
        if let Some(channel) = state.channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = (self.connect)(address)?;
        state.channels.insert(address.to_owned(), channel.clone());
        if !state.addresses.iter().any(|known| known == address) {
            state.addresses.push(address.to_owned());
        }
        Ok(channel)
    }

    /// How many brokers are known.
    pub(crate) fn len(&self) -> usize {
        self.state().addresses.len()
    }

    /// The next broker in turn, another one than `avoid` if there is one.
    pub(crate) fn any(&self, avoid: Option<&str>) -> String {
        let mut state = self.state();
        let count = state.addresses.len();
        for _ in 0..count {
            state.cursor = (state.cursor + 1) % count;
            if avoid != Some(state.addresses[state.cursor].as_str()) {
                break;
            }
        }
        state.addresses[state.cursor].clone()
    }
}

/// An address is `host:port`.
fn check(address: &str) -> Result<(), ClientError> {
    let sound = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0));
    if sound && !address.contains('/') {
        return Ok(());
    }
    Err(ClientError::BadAddress { address: address.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        for good in ["localhost:1", "127.0.0.1:65535", "[::1]:80"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost", ":80", "a:0", "a:65536", "http://a:80", "a:b"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn brokers_take_turns_and_one_can_be_avoided() {
        let brokers = Brokers::new(&["a:1".into(), "b:1".into()], tcp()).unwrap();
        let turns: Vec<String> = (0..4).map(|_| brokers.any(None)).collect();
        assert_eq!(turns, ["b:1", "a:1", "b:1", "a:1"]);
        assert_eq!(brokers.any(Some("b:1")), "a:1");
        assert_eq!(brokers.any(Some("b:1")), "a:1");
        let alone = Brokers::new(&["a:1".into()], tcp()).unwrap();
        assert_eq!(alone.any(Some("a:1")), "a:1");
    }
}
