//! Certificates: ours checked by the server, the server's checked by us.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod support;

use std::path::Path;
use std::process::Command;

use evenkeel_coordination::{ErrorClass, Store, StoreConfig, Tls};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use support::{PATIENCE, SECOND, held, session};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

/// An authority and what it has signed, in PEM form.
struct Authority {
    certificate: Vec<u8>,
    server: (Vec<u8>, Vec<u8>),
    client: (Vec<u8>, Vec<u8>),
}

/// Made with the openssl program; `None`, with a line that says so, if there is none.
fn authority(folder: &Path) -> Option<Authority> {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: no openssl program here");
        return None;
    }
    let openssl = |arguments: &str| {
        let done = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("req -x509 {new_key} -keyout ca.key -out ca.pem -subj /CN=authority"));
    let signed = |name: &str| {
        openssl(&format!(
            "req -x509 {new_key} -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem \
             -subj /CN={name} -addext basicConstraints=CA:FALSE \
             -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        ));
        (read(&format!("{name}.pem")), read(&format!("{name}.key")))
    };
    let (server, client) = (signed("server"), signed("client"));
    Some(Authority { certificate: read("ca.pem"), server, client })
}

async fn serve(authority: &Authority) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (certificate, key) = &authority.server;
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(Certificate::from_pem(&authority.certificate));
    let etcd = EmbeddedEtcd::new(1);
    let server = Server::builder().tls_config(tls).unwrap().add_routes(etcd.routes());
    tokio::spawn(async move {
        let _alive = etcd;
        server.serve_with_incoming(TcpIncoming::from(listener)).await
    });
    url
}

#[tokio::test]
async fn both_sides_show_certificates_and_a_wrong_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(ours) = authority(folder.path()) else { return };
    let url = serve(&ours).await;
    let open = |tls| {
        Store::open(StoreConfig { tls: Some(tls), patience: SECOND, ..StoreConfig::urls([&url]) })
            .unwrap()
    };
    let right = Tls {
        ca: Some(ours.certificate.clone()),
        identity: Some(ours.client.clone()),
        domain: None,
    };
    let store = open(right.clone());
    store.probe(PATIENCE).await.unwrap();
    store.put("/t/a", b"1".to_vec(), None).await.unwrap();
    let session = session(&store, 2);
    held(&session).await;

    let other = tempfile::tempdir().unwrap();
    let Some(stranger) = authority(other.path()) else { return };
    let wrong_authority = Tls { ca: Some(stranger.certificate), ..right.clone() };
    let wrong_name = Tls { domain: Some("elsewhere".to_owned()), ..right.clone() };
    let nothing_to_show = Tls { identity: None, ..right };
    for (tls, text) in [
        (wrong_authority, "invalid peer certificate"),
        (wrong_name, "elsewhere"),
        // The server hangs up; when that is seen decides how it is called.
        (nothing_to_show, ""),
    ] {
        let error = open(tls).probe(SECOND).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Unavailable, "{error}");
        assert!(error.detail.contains(text), "{text}: {error}");
    }
}
