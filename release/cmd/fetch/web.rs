//! A web server as a source: the one place that asks the network.

use super::source::{Refusal, Reply};
use parbake_model::VERSION;
use parbake_model::settings::Config;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Where systems keep the certificates of the authorities that they trust.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How many times a server may send us elsewhere.
const REDIRECTS: u32 = 5;

pub(super) struct Web {
    base: String,
    agent: Agent,
    authorities: usize,
}

impl Web {
    pub(super) fn new(base: &str, config: &Config) -> Result<Self, String> {
        // Another part of the process may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = authorities()?;
        let authorities = certificates.len();
        let roots = RootCerts::Specific(Arc::new(certificates));
        let (connect, stall) = (Some(config.fetch_connect), Some(config.fetch_stall));
        let agent = Agent::config_builder()
            .user_agent(format!("parbake/{VERSION}"))
            // Sizes are those of the index.
            .accept_encoding("identity")
            // Who asks for an encrypted source is not led away from one.
            .https_only(base.starts_with("https://"))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            .timeout_resolve(connect)
            .timeout_connect(connect)
            .timeout_send_request(stall)
            .timeout_recv_response(stall)
            .timeout_per_read(stall)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Self { base: base.to_owned(), agent: agent.into(), authorities })
    }

    pub(super) fn get(&self, path: &str, from: u64, etag: Option<&str>) -> Result<Reply, Refusal> {
        let response = self.ask(path, from, etag)?;
        // The file is shorter than what is here, so it is another one.
        let response = if response.status() == StatusCode::RANGE_NOT_SATISFIABLE && from > 0 {
            self.ask(path, 0, None)?
        } else {
            response
        };
        let status = response.status();
        let headers = response.headers();
        let (start, total) = match status {
            StatusCode::OK => (0, text(headers, header::CONTENT_LENGTH).and_then(|t| t.parse().ok())),
            StatusCode::PARTIAL_CONTENT => text(headers, header::CONTENT_RANGE)
                .and_then(range)
                .ok_or_else(|| Refusal::of(format!("{path}: it sends a part, and does not say which")))?,
            _ => {
                let why = format!("{path}: the server answers {status}");
                return Err(Refusal { absent: [404, 410].contains(&status.as_u16()), why });
            }
        };
        let html = text(headers, header::CONTENT_TYPE).is_some_and(|t| t.trim_start().starts_with("text/html"));
        // A weak tag does not promise the same bytes.
        let etag = text(headers, header::ETAG).filter(|t| t.starts_with('"')).map(str::to_owned);
        let body = Box::new(Body(response.into_body().into_reader()));
        Ok(Reply { start, total, etag, html, body })
    }

    fn ask(&self, path: &str, from: u64, etag: Option<&str>) -> Result<Response<ureq::Body>, Refusal> {
        let mut request = self.agent.get(format!("{}/{path}", self.base));
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
            if let Some(etag) = etag {
                request = request.header(header::IF_RANGE, etag);
            }
        }
        request.call().map_err(|e| Refusal::of(format!("{path}: {}", self.words(&e))))
    }

    fn words(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::HostNotFound => "the name of the host is not known".to_owned(),
            ureq::Error::TooManyRedirects => format!("it leads elsewhere more than {REDIRECTS} times"),
            ureq::Error::RequireHttpsOnly(_) => "it leads from https to an address without".to_owned(),
            ureq::Error::Timeout(what) => {
                format!("no answer in time ({what}; PARBAKE_FETCH_CONNECT, PARBAKE_FETCH_STALL)")
            }
            _ if !of_tls(error) => error.to_string(),
            _ if self.authorities == 0 => {
                format!("TLS: {error}; no certificates of authorities were found here: name a file in SSL_CERT_FILE")
            }
            _ => format!("TLS: {error} (SSL_CERT_FILE names authorities)"),
        }
    }
}

/// Whether the two sides could not agree on an encrypted connection.
fn of_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) => true,
        ureq::Error::Io(e) => e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}

/// What comes, with time limits told from other errors.
struct Body(ureq::BodyReader<'static>);

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|e| {
            let limit = e
                .get_ref()
                .and_then(|inner| inner.downcast_ref())
                .is_some_and(|inner| matches!(inner, ureq::Error::Timeout(_)));
            if limit { io::ErrorKind::TimedOut.into() } else { e }
        })
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The first byte and the size of the whole, of `bytes 5-9/10`.
fn range(text: &str) -> Option<(u64, Option<u64>)> {
    let (part, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let start = part.split_once('-')?.0.parse().ok()?;
    Some((start, total.parse().ok()))
}

/// The authorities of `SSL_CERT_FILE`, else the system's. None at all is no error: `http://` needs none.
fn authorities() -> Result<Vec<ureq::tls::Certificate<'static>>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|p| !p.is_empty()).map(PathBuf::from);
    let asked = named.is_some();
    let Some(path) = named.or_else(|| AUTHORITIES.iter().map(PathBuf::from).find(|p| p.is_file())) else {
        return Ok(Vec::new());
    };
    let pem = std::fs::read(&path).map_err(|e| format!("SSL_CERT_FILE: cannot read {}: {e}", path.display()))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if asked && certificates.is_empty() {
        return Err(format!("SSL_CERT_FILE: {} has no certificates", path.display()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_read() {
        assert_eq!(range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((5, None)));
        for bad in ["bytes */10", "5-9/10", "bytes 5/10", ""] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
