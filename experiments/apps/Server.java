// An application for Java's HttpServer with eight threads: each answer takes a fixed amount of work. Arguments: host, port.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.concurrent.Executors;

public class Server {
    private static final int ROUNDS = 10_000;

    public static void main(String[] arguments) throws Exception {
        var address = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        var server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> {
            var page = page();
            exchange.getResponseHeaders().set("Content-Type", "text/html");
            exchange.sendResponseHeaders(200, page.length);
            try (var body = exchange.getResponseBody()) {
                body.write(page);
            }
        });
        server.start();
    }

    private static byte[] page() {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            var sum = "page".getBytes();
            for (int round = 0; round < ROUNDS; round++) {
                sum = digest.digest(sum);
            }
            return HexFormat.of().formatHex(sum).repeat(16).getBytes();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
