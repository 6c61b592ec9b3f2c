//! The embedded server, listening for this process and for others on the machine.

use evenkeel_embedded_etcd::EmbeddedEtcd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Environment;
use crate::network::{ListenError, advertised};

/// Stops serving when dropped.
#[derive(Debug)]
pub(super) struct Server {
    url: String,
    serving: JoinHandle<()>,
    _stop: oneshot::Sender<()>,
}

impl Server {
    pub(super) async fn start(listen: &str, env: &Environment) -> Result<Self, ListenError> {
        let incoming = env.network.listen(listen).await?;
        let url = format!("http://{}", advertised(None, incoming.address()));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = EmbeddedEtcd::new(env.seed).serve(incoming, async move {
            // The sender is dropped rather than used.
            let _ = stopped.await;
        });
        let serving = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the embedded etcd stopped");
            }
        });
        tracing::warn!(
            url,
            "embedded etcd: keeps everything in memory, has one member; for demos and tests"
        );
        Ok(Self { url, serving, _stop: stop })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
