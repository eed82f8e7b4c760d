//! Clients of Redis or Valkey: of one server, of one of a Redis Cluster, or of the primary that Sentinel names.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, TlsCertificates, TlsMode,
};

use crate::config::DatabaseUri;

/// A database, not connected yet.
pub(crate) struct RedisClient {
    uri: DatabaseUri,
    roots: Option<Vec<u8>>,
}

impl RedisClient {
    /// Returns the client of a database, without connecting. `roots` are its trust anchors in PEM.
    ///
    /// # Errors
    /// Fails for trust anchors that cannot be read.
    pub(crate) fn new(uri: DatabaseUri, roots: Option<Vec<u8>>) -> Result<Self, String> {
        let client = RedisClient { uri, roots };
        match client.uri.service {
            Some(_) => client.sentinel().map(drop),
            None => client.server(client.address(0)).map(drop),
        }
        .map_err(|e| format!("{}: {e}", client.uri))?;
        Ok(client)
    }

    /// Returns the URI, which is written without its password.
    pub(crate) fn uri(&self) -> &DatabaseUri {
        &self.uri
    }

    /// Connects with the primary, or with a server at this host and port. Its callers have a limit of their own, for all of
    /// their work.
    pub(crate) async fn connect(
        &self,
        server: Option<(&str, u16)>,
    ) -> Result<MultiplexedConnection, String> {
        let client = self.client(server).await.map_err(|e| e.to_string())?;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map_err(|e| e.to_string())
    }

    /// Subscribes to a channel at the primary, or at a server at this host and port.
    pub(crate) async fn subscribe(
        &self,
        server: Option<(&str, u16)>,
        channel: &str,
    ) -> Result<PubSub, RedisError> {
        let client = self.client(server).await?;
        let mut connection = client.get_async_pubsub().await?;
        connection.subscribe(channel).await?;
        Ok(connection)
    }

    async fn client(&self, server: Option<(&str, u16)>) -> Result<Client, RedisError> {
        match (server, &self.uri.service) {
            (Some((host, port)), _) => self.server(self.address_of(host, port)),
            // Asked for each connection: another server may be the primary now.
            (None, Some(_)) => self.sentinel()?.async_get_client().await,
            (None, None) => self.server(self.address(0)),
        }
    }

    fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None, root_cert: self.roots.clone() }
    }

    fn server(&self, address: ConnectionAddr) -> Result<Client, RedisError> {
        let uri = &self.uri;
        let mut settings =
            RedisConnectionInfo::default().set_db(uri.number).set_skip_set_lib_name();
        if let Some(user) = &uri.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &uri.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_redis_settings(settings);
        match uri.tls {
            true => Client::build_with_tls(info, self.certificates()),
            false => Client::open(info),
        }
    }

    fn sentinel(&self) -> Result<SentinelClient, RedisError> {
        let uri = &self.uri;
        let service = uri.service.as_deref().unwrap_or_default();
        let sentinels = (0..uri.hosts.len()).map(|i| self.address(i));
        let mut builder =
            SentinelClientBuilder::new(sentinels, service, SentinelServerType::Master)?
                .set_client_to_redis_db(uri.number);
        if let Some(user) = &uri.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &uri.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = &uri.sentinel.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &uri.sentinel.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if uri.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(self.certificates())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(self.certificates());
        }
        builder.build()
    }

    fn address(&self, i: usize) -> ConnectionAddr {
        let (host, port) = &self.uri.hosts[i];
        self.address_of(host, *port)
    }

    fn address_of(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = host.to_owned();
        match self.uri.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        }
    }
}
