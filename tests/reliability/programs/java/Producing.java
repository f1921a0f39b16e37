import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.
 *
 * With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone. A window of records is
 * under way. Only what was refused for a reason that rules out that it was written is a failure; every other
 * error leaves it unknown. A producer that may not go on says so with exit code 1.
 */
final class Producing {
    private static final int UNDER_WAY_MAX = 10;
    private static final int TIMEOUT_SECONDS = 60;
    private static final int DELIVERY_MS = 600_000;

    public static void main(String[] arguments) throws InterruptedException {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Journal journal = new Journal(arguments[3]);
        Stopping stop = new Stopping();
        long pauseMs = Long.parseLong(System.getenv().getOrDefault("DLOG_LOAD_PAUSE_MS", "0"));
        Semaphore room = new Semaphore(UNDER_WAY_MAX);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings(arguments[0]), new ByteArraySerializer(), new ByteArraySerializer());
        for (long number = 0; !stop.isSet(); number++) {
            while (!room.tryAcquire(100, TimeUnit.MILLISECONDS)) {
                if (stop.isSet()) {
                    end(producer, room);
                    return;
                }
            }
            TopicPartition place = new TopicPartition(topic, (int) (number % partitions));
            String value = arguments[3] + "-" + number;
            journal.send(place, value);
            try {
                producer.send(new ProducerRecord<>(topic, place.partition(), null, Values.bytes(value)), (at, error) -> {
                    journal.sent(value, outcome(error), error == null && at.hasOffset() ? at.offset() : null);
                    room.release();
                });
            } catch (KafkaException error) {
                System.err.println(error);
                System.exit(1);
            }
            stop.rest(pauseMs);
        }
        end(producer, room);
    }

    private static Map<String, Object> settings(String bootstrap) {
        String acks = System.getenv().getOrDefault("DLOG_LOAD_ACKS", "all");
        Map<String, Object> settings = Settings.common(bootstrap);
        settings.put("acks", acks);
        settings.put("enable.idempotence", acks.equals("all"));
        settings.put("max.in.flight.requests.per.connection", acks.equals("all") ? 5 : 1);
        settings.put("linger.ms", 2);
        settings.put("delivery.timeout.ms", DELIVERY_MS);
        settings.put("max.block.ms", DELIVERY_MS);
        return settings;
    }

    private static String outcome(Exception error) {
        boolean isRefused = error instanceof RecordTooLargeException
            || error instanceof InvalidRecordException
            || error instanceof TopicAuthorizationException;
        return error == null ? "ok" : isRefused ? "fail" : "unknown";
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, Semaphore room) throws InterruptedException {
        room.tryAcquire(UNDER_WAY_MAX, TIMEOUT_SECONDS, TimeUnit.SECONDS);
        producer.close(Duration.ofSeconds(5));
    }
}
