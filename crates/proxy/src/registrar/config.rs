//! The operator's configuration of registrations.

/// The operator's configuration of registrations.
#[derive(Clone, Debug)]
pub struct RegistrarConfig {
    /// Seconds a binding lasts if the request names no time.
    pub default_expires: u32,
    /// Minimum seconds of a binding; a shorter one is answered with 423.
    pub min_expires: u32,
    /// Maximum seconds of a binding, whatever is asked for.
    pub max_expires: u32,
    /// Maximum number of contacts of one address-of-record; one more is answered with 403.
    pub max_contacts: usize,
    /// The value of Service-Route in responses, elements with their angle brackets and `;lr`; empty for none (RFC
    /// 3608).
    pub service_route: Vec<u8>,
    /// Seconds for Flow-Timer in responses to direct outbound registrations (RFC 5626 section 6).
    pub flow_timer: Option<u32>,
}

impl Default for RegistrarConfig {
    fn default() -> Self {
        RegistrarConfig {
            default_expires: 3600,
            min_expires: 60,
            max_expires: 7200,
            max_contacts: 10,
            service_route: Vec::new(),
            flow_timer: None,
        }
    }
}
