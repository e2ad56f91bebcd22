import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.IOException;
import java.io.Reader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

/**
 * Debezium's engine with a consumer that sends as the HTTP sink of Debezium Server does: one event or one list a
 * request, five tries a second apart, then the end. The argument is a file of the engine's properties; {@code
 * feeder.url} and {@code feeder.mode} (list or single) are its own.
 */
public final class Feeder {
    private static final int TRIES = 5;
    private static final long PAUSE_MILLIS = 1000;

    private final HttpClient client = HttpClient.newHttpClient();
    private final URI url;
    private final boolean list;

    private Feeder(URI url, boolean list) {
        this.url = url;
        this.list = list;
    }

    public static void main(String[] arguments) throws IOException {
        Properties properties = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(file);
        }
        URI url = URI.create((String) properties.remove("feeder.url"));
        Feeder feeder = new Feeder(url, "list".equals(properties.remove("feeder.mode")));
        DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying(feeder::send)
                .using((success, message, error) -> System.err.println("engine ended: " + message))
                .build()
                .run();
        System.exit(1);
    }

    private void send(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        List<String> values =
                events.stream().map(ChangeEvent::value).filter(value -> value != null).toList();
        if (list && !values.isEmpty()) {
            post("[" + String.join(",", values) + "]");
        }
        for (ChangeEvent<String, String> event : events) {
            if (!list && event.value() != null) {
                post(event.value());
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
    }

    private void post(String body) throws InterruptedException {
        for (int left = TRIES; left > 0; left--) {
            try {
                HttpRequest request = HttpRequest.newBuilder(url)
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofString(body))
                        .build();
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() / 100 == 2) {
                    return;
                }
                System.err.println("refused: " + answer.statusCode() + " " + answer.body());
            } catch (IOException error) {
                System.err.println("not sent: " + error);
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        throw new IllegalStateException("gave up after " + TRIES + " tries");
    }
}
