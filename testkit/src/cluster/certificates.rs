//! The certificates of a cluster: one authority, and an identity for whoever speaks to the API server, or to another
//! service of its nodes.
//!
//! They are made anew for each cluster and are never used outside it. They are valid for a day, as a client
//! whose clock is wrong notices.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

use crate::runtimes::RuntimeError;

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// What signs a cluster's certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self, RuntimeError> {
        let mut params = valid_for_a_day();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "palisade test cluster");
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        Ok(Self { issuer })
    }

    /// Its own certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// An identity for a client, or for a server that is reached by these addresses and names.
    ///
    /// # Errors
    /// If it cannot be made, as where a name is none.
    pub fn issue(
        &self,
        name: &str,
        group: Option<&str>,
        addresses: &[IpAddr],
        hosts: &[&str],
    ) -> Result<Identity, RuntimeError> {
        let mut params = valid_for_a_day();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            let kind = DnType::OrganizationName;
            params.distinguished_name.push(kind, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        for address in addresses {
            params.subject_alt_names.push(SanType::IpAddress(*address));
        }
        for host in hosts {
            let host = (*host).try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::DnsName(host));
        }
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Parameters of a certificate that is valid from half a day ago on, for a day.
fn valid_for_a_day() -> CertificateParams {
    let half = Duration::from_secs(12 * 3600);
    #[allow(
        clippy::disallowed_methods,
        reason = "the programs of the cluster have the real clock"
    )]
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.not_before = (now - half).into();
    params.not_after = (now + half).into();
    params
}

/// A key pair that signs tokens: the private and the public key, as PEM.
pub(super) fn token_keys() -> Result<(String, String), RuntimeError> {
    let key = KeyPair::generate().map_err(failed)?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn failed(error: rcgen::Error) -> RuntimeError {
    let source = std::io::Error::other(error);
    RuntimeError::io_error("making a cluster's certificates")(source)
}
