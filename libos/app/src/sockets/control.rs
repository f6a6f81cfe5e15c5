//! The control port of an application on sockets: a task accepts its clients on the application's own stack.

use super::{Error, Network, Shutdown, TcpListener, TcpStream};
use alloc::vec::Vec;
use nom_rt::handle::Handle;
use nom_serve::Reception;
use nom_service::Stream;

/// Bytes taken at a time: requests are short.
const PIECE: usize = 512;

/// Has `reception` answer whoever connects to its port. Nobody pays for that, and it counts as no request.
///
/// # Errors
/// [`Error::InUse`].
pub(super) fn open(network: &Network, reception: Reception, handle: &Handle) -> Result<(), Error> {
    let listener = network.listen(reception.port())?;
    network.with(|sockets| sockets.leave_uncounted(listener.id()))?;
    handle.spawn(accept(network.clone(), listener, reception, handle.clone()));
    Ok(())
}

async fn accept(network: Network, listener: TcpListener, reception: Reception, handle: Handle) {
    while let Ok(client) = listener.accept().await {
        let (network, reception) = (network.clone(), reception.clone());
        handle.spawn(async move {
            // A client that resets its connection is gone, and nothing else.
            let _ = attend(&network, &client, &reception).await;
        });
    }
}

async fn attend(network: &Network, client: &TcpStream, reception: &Reception) -> Result<(), Error> {
    let (mut input, mut piece) = (Vec::new(), [0; PIECE]);
    loop {
        let len = client.receive(&mut piece).await?;
        if len == 0 {
            return Ok(());
        }
        input.extend_from_slice(&piece[..len]);
        let mut answers = Vec::new();
        let course = network.with(|sockets| reception.respond(sockets.stack(), &mut input, &mut answers));
        client.send_all(&answers).await?;
        if course == Stream::Close {
            return client.shutdown(Shutdown::Send);
        }
    }
}
