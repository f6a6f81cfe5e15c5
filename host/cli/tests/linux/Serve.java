// Serves HTTP with Java's own library, by four threads, and has the heap collected.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Serve {
    static String text(String path) {
        if (!path.equals("/compute")) {
            return path;
        }
        long bytes = 0;
        for (int round = 0; round < 1000; round++) {
            bytes += new byte[65536].length;
        }
        System.gc();
        try {
            return ((String) null).trim();
        } catch (NullPointerException expected) {
            return bytes + " bytes";
        }
    }

    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(80), 16);
        server.createContext("/", exchange -> {
            byte[] answer = ("java: " + text(exchange.getRequestURI().getPath()) + "\n").getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
