//! Where the store is and how to speak to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::{ErrorClass, StoreError};

/// One etcd member.
#[derive(Clone)]
pub enum Endpoint {
    /// `http://host:port`, `https://host:port` or `host:port`.
    Url(String),
    /// Makes a channel that leads to the member, such as an in-memory link. Called once for each
    /// connection: watches do not share one with large reads.
    Channel(Arc<dyn Fn() -> Channel + Send + Sync>),
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Channel(_) => f.write_str("in-memory"),
        }
    }
}

/// Certificates in PEM form.
#[derive(Clone, Default)]
pub struct Tls {
    /// Certificate authority of the members.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key, for members that ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Name expected in the member's certificate; that of the URL if none.
    pub domain: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("domain", &self.domain)
            .finish()
    }
}

/// Settings of a [`crate::Store`].
#[derive(Clone)]
pub struct StoreConfig {
    /// The members; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Name and password, if the members ask for them.
    pub user: Option<(String, String)>,
    /// Certificates; needed for `https`.
    pub tls: Option<Tls>,
    /// Limit of one attempt of a call. 2 s.
    pub request_timeout: Duration,
    /// How long a call that can safely be repeated is tried in all. 5 s.
    pub patience: Duration,
    /// Keys in one page of a listing; fewer if they are large. 1000.
    pub page_size: i64,
    /// A key that the user may read: what [`crate::Store::probe`] asks for.
    pub probe_key: String,
    /// Chooses the first endpoint and the jitter of pauses.
    pub seed: u64,
}

impl StoreConfig {
    /// The defaults, for these members.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            user: None,
            tls: None,
            request_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(5),
            page_size: 1000,
            probe_key: "/cluster/".to_owned(),
            seed: 0,
        }
    }

    /// The defaults, for members named by URL.
    pub fn urls<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        Self::new(urls.into_iter().map(|url| Endpoint::Url(url.into())))
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.endpoints.is_empty() {
            return Err(invalid("etcd endpoints: none given; expected at least one URL".into()));
        }
        if self.page_size < 1 {
            return Err(invalid(format!("page_size: {}; expected 1 or more", self.page_size)));
        }
        for timeout in [self.request_timeout, self.patience] {
            if timeout.is_zero() {
                return Err(invalid("request_timeout and patience: expected more than 0".into()));
            }
        }
        for endpoint in &self.endpoints {
            if let Endpoint::Url(url) = endpoint {
                self.transport(url)?;
            }
        }
        Ok(())
    }

    /// The transport for a URL. Nothing is connected yet.
    pub(super) fn transport(&self, url: &str) -> Result<tonic::transport::Endpoint, StoreError> {
        let wrong = |why: &str| {
            invalid(format!("etcd endpoint {url:?}: {why}; expected http(s)://host:port"))
        };
        let trimmed = url.trim_end_matches('/');
        let (scheme, rest) = match trimmed.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => (if self.tls.is_some() { "https" } else { "http" }, trimmed),
        };
        match scheme {
            "http" if self.tls.is_some() => return Err(wrong("http with certificates given")),
            "https" if self.tls.is_none() => return Err(wrong("https without certificates")),
            "http" | "https" => {}
            _ => return Err(wrong("unknown scheme")),
        }
        if rest.contains('/') {
            return Err(wrong("a path is given"));
        }
        let uri: tonic::codegen::http::Uri =
            format!("{scheme}://{rest}").parse().map_err(|e| wrong(&format!("{e}")))?;
        if uri.host().is_none_or(str::is_empty) || uri.port_u16().is_none() {
            return Err(wrong("host or port is missing"));
        }
        let mut endpoint = Channel::builder(uri)
            .connect_timeout(self.request_timeout / 2)
            // etcd closes connections that ping more often than every 5 s, or while idle.
            .http2_keep_alive_interval(Duration::from_secs(6))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(false);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.client()).map_err(|e| wrong(&format!("{e}")))?;
        }
        Ok(endpoint)
    }
}

impl Tls {
    fn client(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some(ca) = &self.ca {
            config = config.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain);
        }
        config
    }
}

impl<S: Into<String>> From<Vec<S>> for StoreConfig {
    fn from(urls: Vec<S>) -> Self {
        Self::urls(urls)
    }
}

fn invalid(detail: String) -> StoreError {
    StoreError::new(ErrorClass::Fatal, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_endpoint_says_what_was_expected() {
        let cases = [
            ("http://a:1/path", "a path is given"),
            ("ftp://a:1", "unknown scheme"),
            ("https://a:1", "https without certificates"),
            ("a", "host or port is missing"),
            ("http://:2379", "host or port is missing"),
            ("http://a b:1", ""),
        ];
        for (url, why) in cases {
            let error = StoreConfig::urls([url]).check().expect_err(url);
            assert_eq!(error.class, ErrorClass::Fatal, "{url}");
            assert!(error.detail.contains(why) && error.detail.contains(url), "{url}: {error}");
        }
        for url in ["http://a:1", "a:1", "http://127.0.0.1:2379/", "http://[::1]:2379"] {
            assert_eq!(StoreConfig::urls([url]).check(), Ok(()), "{url}");
        }
        assert!(StoreConfig::urls(Vec::<String>::new()).check().is_err());
    }
}
