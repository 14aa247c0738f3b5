//! HS256 by `ring`, for `jsonwebtoken`, which is built without cryptography of its own.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use ring::hmac;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Hs256::new(*algorithm, key.family(), key.as_bytes())?),
    verifier_factory: |algorithm, key| {
        Ok(Hs256::new(*algorithm, key.family(), key.try_get_as_bytes()?)?)
    },
    // For JSON web keys, which no token of this service has.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` sign and verify with HS256. Without it each of its calls panics.
pub(super) fn install() {
    // An error means that a provider is installed: this one by an earlier call, or a caller's own.
    let _installed_before = PROVIDER.install_default();
}

struct Hs256(hmac::Key);

impl Hs256 {
    fn new(algorithm: Algorithm, family: AlgorithmFamily, secret: &[u8]) -> Result<Box<Self>> {
        if algorithm != Algorithm::HS256 {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        if family != AlgorithmFamily::Hmac {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        Ok(Box::new(Self(hmac::Key::new(hmac::HMAC_SHA256, secret))))
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    // `ring` compares in the same time wherever the signature differs.
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, EncodingKey, crypto};

    use super::*;

    /// The example of RFC 7515, appendix A.1.
    const MESSAGE: &[u8] = b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAi\
        OjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const KEY: &str =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ+EstJQLr/T+1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow==";
    const SIGNATURE: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

    const OTHERS: [Algorithm; 11] = [
        Algorithm::HS384,
        Algorithm::HS512,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
        Algorithm::EdDSA,
    ];

    #[test]
    fn signs_and_verifies_the_example_of_the_standard() {
        install();
        let key = EncodingKey::from_base64_secret(KEY).unwrap();
        assert_eq!(crypto::sign(MESSAGE, &key, Algorithm::HS256).unwrap(), SIGNATURE);
        let key = DecodingKey::from_base64_secret(KEY).unwrap();
        let verify = |signature: &str, message: &[u8]| {
            crypto::verify(signature, message, &key, Algorithm::HS256).unwrap()
        };
        assert!(verify(SIGNATURE, MESSAGE));
        assert!(!verify(SIGNATURE, &MESSAGE[1..]));
        for end in [0, 4, 20, 40] {
            assert!(!verify(&SIGNATURE[..end], MESSAGE), "{end} characters of the signature");
        }
        assert!(!verify(&format!("{SIGNATURE}AAAA"), MESSAGE), "three bytes more");
    }

    #[test]
    fn every_other_algorithm_is_an_error() {
        install();
        let (signing, verifying) =
            (EncodingKey::from_secret(b"secret"), DecodingKey::from_secret(b"secret"));
        for algorithm in OTHERS {
            assert!(crypto::sign(MESSAGE, &signing, algorithm).is_err(), "{algorithm:?}");
            let verified = crypto::verify(SIGNATURE, MESSAGE, &verifying, algorithm);
            assert!(verified.is_err(), "{algorithm:?}");
        }
    }

    #[test]
    fn a_public_key_is_no_secret() {
        install();
        let tag = crypto::sign(MESSAGE, &EncodingKey::from_secret(b"public"), Algorithm::HS256);
        for key in [
            DecodingKey::from_rsa_der(b"public"),
            DecodingKey::from_ec_der(b"public"),
            DecodingKey::from_ed_der(b"public"),
            DecodingKey::from_rsa_raw_components(b"public", b"3"),
        ] {
            let verified = crypto::verify(tag.as_ref().unwrap(), MESSAGE, &key, Algorithm::HS256);
            assert!(verified.is_err(), "{:?}", key.family());
        }
        for key in [EncodingKey::from_rsa_der(b"private"), EncodingKey::from_ec_der(b"private")] {
            assert!(crypto::sign(MESSAGE, &key, Algorithm::HS256).is_err());
        }
    }
}
