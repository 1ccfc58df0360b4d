//! The token that requests carry. It is never in an error, a log or debug output.

use std::fmt;

use http::HeaderValue;

/// A token for the `Authorization` header. Its debug output is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    header: HeaderValue,
}

impl Secret {
    /// A token from text, without the white space around it. `scheme` is its word in the header, such as `Bearer`.
    ///
    /// # Errors
    /// What is wrong with the text, without repeating it.
    pub fn new(scheme: &str, text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("holds blanks or characters beyond ASCII, so no header can carry it");
        }
        let header = HeaderValue::try_from(format!("{scheme} {text}"));
        let mut header = header.map_err(|_| "can't be carried by a header")?;
        // Keeps the token out of the HTTP library's own debug output.
        header.set_sensitive(true);
        Ok(Self {
            text: text.to_owned(),
            header,
        })
    }

    /// The `Authorization` header's value.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The text without the token: servers and proxies echo requests in their errors, some as JSON within the text.
    pub fn scrub(&self, text: String) -> String {
        crate::text::scrub(&self.text, text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
