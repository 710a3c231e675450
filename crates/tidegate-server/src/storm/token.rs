//! What signs in: the sale's secret for the crowd, and the operators' token for the books.

use crate::exit::Usage;
use std::path::Path;
use tidegate_sale::Secret;

/// Environment variable with the sale's secret.
pub(super) const VARIABLE: &str = "TIDEGATE_SALE_SECRET";
/// The file in the sale's folder that holds it.
const FILE: &str = "secret";
/// The one with what operators sign in with.
const ADMIN_FILE: &str = "admin-token";

/// The secret, as it was given, or else as the sale on this machine has left it in its folder.
pub(super) fn secret(given: Option<&str>, folder: &Path) -> Result<Secret, Usage> {
    if let Some(text) = given {
        return Secret::from_hex(text)
            .ok_or_else(|| Usage(format!("--secret, or {VARIABLE}: a secret is 64 hexadecimal digits")));
    }
    let file = folder.join(FILE);
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let file = file.display();
        Usage(format!(
            "the sale's secret, with which buyers are signed in, is not in {file} ({error}): \
            start `tidegate sale` there, name its folder with --data, or give the secret in {VARIABLE}"
        ))
    })?;
    Secret::from_hex(&text)
        .ok_or_else(|| Usage(format!("{} is no secret: it has 64 hexadecimal digits", file.display())))
}

/// The operators' token, as it was given, or else as the sale on this machine has left it in its
/// folder; none if neither is so.
pub(super) fn admin(given: Option<&str>, folder: &Path) -> Result<Option<String>, Usage> {
    let token = match given.filter(|token| !token.is_empty()) {
        Some(token) => token.to_owned(),
        None => match std::fs::read_to_string(folder.join(ADMIN_FILE)) {
            Ok(token) => token.trim().to_owned(),
            Err(_) => return Ok(None),
        },
    };
    // It becomes a line of a request.
    match token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Some(token)),
        false => Err(Usage("the admin token: visible ASCII characters only".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_the_option_or_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let hex = "0123456789abcdefABCDEF000000000000000000000000000000000000000000";
        let missing = secret(None, folder.path()).unwrap_err().0;
        assert!(missing.contains("--data") && missing.contains(VARIABLE), "{missing}");
        std::fs::write(folder.path().join("secret"), format!("{hex}\n")).unwrap();
        let read = secret(None, folder.path()).unwrap();
        assert_eq!(read.to_hex(), hex.to_lowercase());
        assert_eq!(secret(Some(hex), Path::new("/nowhere")).unwrap(), read);
        assert!(secret(Some("abc"), folder.path()).is_err());
    }

    #[test]
    fn the_operators_token_comes_from_the_option_or_the_folder_and_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(admin(None, folder.path()).unwrap(), None);
        std::fs::write(folder.path().join("admin-token"), "0123456789abcdef\n").unwrap();
        assert_eq!(admin(Some(""), folder.path()).unwrap().as_deref(), Some("0123456789abcdef"));
        assert_eq!(admin(Some("another"), folder.path()).unwrap().as_deref(), Some("another"));
        assert!(admin(Some("a\r\nb: c"), folder.path()).is_err());
    }
}
