import java.util.HashMap;
import java.util.Map;

/** What the clients have in common: they are told soon of what brokers do, and wait for nobody for ever. */
final class Settings {
    static final int REQUEST_MS = 5_000;

    static Map<String, Object> common(String bootstrap) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", REQUEST_MS);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("retry.backoff.ms", 50);
        settings.put("metadata.max.age.ms", 5_000);
        return settings;
    }

    static Map<String, Object> consumer(String bootstrap, String group, String offsetReset) {
        Map<String, Object> settings = common(bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", offsetReset);
        settings.put("allow.auto.create.topics", false);
        settings.put("default.api.timeout.ms", REQUEST_MS);
        settings.put("fetch.max.wait.ms", 100);
        return settings;
    }
}
