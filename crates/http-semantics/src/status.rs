//! Status codes and their reason phrases (RFC 9110, section 15).
//!
//! The text of the error page depends on the code alone. It is rendered at compile time and costs a copy. HTTP/1 renders
//! its status lines likewise, from [`for_each_status`](crate::for_each_status).

/// A status code (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

/// Calls a macro with every known status: a name, its code and its reason phrase, each ended by a semicolon.
#[macro_export]
macro_rules! for_each_status {
    ($with:ident) => {
        $with! {
            CONTINUE 100 "Continue";
            OK 200 "OK";
            CREATED 201 "Created";
            NO_CONTENT 204 "No Content";
            PARTIAL_CONTENT 206 "Partial Content";
            MOVED_PERMANENTLY 301 "Moved Permanently";
            FOUND 302 "Found";
            SEE_OTHER 303 "See Other";
            NOT_MODIFIED 304 "Not Modified";
            TEMPORARY_REDIRECT 307 "Temporary Redirect";
            PERMANENT_REDIRECT 308 "Permanent Redirect";
            BAD_REQUEST 400 "Bad Request";
            UNAUTHORIZED 401 "Unauthorized";
            FORBIDDEN 403 "Forbidden";
            NOT_FOUND 404 "Not Found";
            METHOD_NOT_ALLOWED 405 "Method Not Allowed";
            NOT_ACCEPTABLE 406 "Not Acceptable";
            REQUEST_TIMEOUT 408 "Request Timeout";
            CONFLICT 409 "Conflict";
            GONE 410 "Gone";
            PRECONDITION_FAILED 412 "Precondition Failed";
            CONTENT_TOO_LARGE 413 "Content Too Large";
            URI_TOO_LONG 414 "URI Too Long";
            UNSUPPORTED_MEDIA_TYPE 415 "Unsupported Media Type";
            RANGE_NOT_SATISFIABLE 416 "Range Not Satisfiable";
            EXPECTATION_FAILED 417 "Expectation Failed";
            MISDIRECTED_REQUEST 421 "Misdirected Request";
            UNPROCESSABLE_CONTENT 422 "Unprocessable Content";
            TOO_MANY_REQUESTS 429 "Too Many Requests";
            HEAD_TOO_LARGE 431 "Request Header Fields Too Large";
            INTERNAL_SERVER_ERROR 500 "Internal Server Error";
            NOT_IMPLEMENTED 501 "Not Implemented";
            SERVICE_UNAVAILABLE 503 "Service Unavailable";
            VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported";
            INSUFFICIENT_STORAGE 507 "Insufficient Storage";
        }
    };
}

macro_rules! statuses {
    ($($name:ident $code:literal $reason:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!($code, " (", $reason, ")")]
                pub const $name: Status = Status($code);
            )*

            /// The reason phrase; empty for an unknown code.
            #[inline]
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// The text of the error page: the code, its reason phrase and a line end.
            #[inline]
            pub fn page(self) -> &'static str {
                match self.0 {
                    $($code => concat!($code, " ", $reason, "\n"),)*
                    _ => "Error\n",
                }
            }
        }
    };
}

for_each_status!(statuses);

impl Status {
    /// True if a response with this status never has content (RFC 9110, 6.4.1).
    #[inline]
    pub fn is_bodiless(self) -> bool {
        matches!(self.0, 100..=199 | 204 | 304)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_15_pages_name_code_and_reason() {
        let mut known = 0;
        for status in (0..=999).map(Status).filter(|status| !status.reason().is_empty()) {
            assert_eq!(status.page(), format!("{} {}\n", status.0, status.reason()));
            known += 1;
        }
        assert_eq!(known, 35);
        assert_eq!((Status::NOT_FOUND.0, Status::NOT_FOUND.reason()), (404, "Not Found"));
        assert_eq!(Status(299).page(), "Error\n");
    }

    #[test]
    fn rfc9110_6_4_1_some_statuses_have_no_content() {
        let bodiless: Vec<u16> = (100..=599).filter(|code| Status(*code).is_bodiless()).collect();
        assert_eq!(bodiless, (100..=199).chain([204, 304]).collect::<Vec<_>>());
    }
}
