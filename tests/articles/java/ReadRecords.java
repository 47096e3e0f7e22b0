import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import java.io.File;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer as another team would write it: reads committed records of partition 0, in whichever format they are, and
 * prints one JSON object per line. Arguments: bootstrap servers, topic, number of records, the Avro schema, the compiled
 * Protobuf schema.
 */
public final class ReadRecords {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> OF_TASKS = Set.of("classifications", "dropped_fields", "embeddings", "ids", "regressions", "tasks", "transforms", "vector");

    public static void main(String[] arguments) throws Exception {
        Schema schema = new Schema.Parser().parse(new File(arguments[3]));
        Descriptor message = message(arguments[4]);
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int left = Integer.parseInt(arguments[2]);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0], "isolation.level", "read_committed");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    out.println(JSON.writeValueAsString(read(record, schema, message)));
                    left -= 1;
                }
            }
        }
    }

    private static JsonNode read(ConsumerRecord<byte[], byte[]> record, Schema schema, Descriptor message)
        throws Exception {
        String form = new String(record.headers().lastHeader("content-type").value(), StandardCharsets.UTF_8);
        ByteBuffer value = ByteBuffer.wrap(record.value());
        int schemaId = -1;
        if (value.get(0) == 0) {
            value.get();
            schemaId = value.getInt();
        }
        ObjectNode found = switch (form) {
            case "application/avro" -> avro(rest(value), schema);
            case "application/protobuf" -> protobuf(value, message);
            default -> (ObjectNode) JSON.readTree(rest(value));
        };
        return JSON.createObjectNode().put("schema_id", schemaId).put("form", form).set("record", found);
    }

    private static byte[] rest(ByteBuffer value) {
        byte[] rest = new byte[value.remaining()];
        value.get(rest);
        return rest;
    }

    private static ObjectNode avro(byte[] payload, Schema schema) throws Exception {
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(payload, null);
        GenericRecord record = new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
        if (!decoder.isEnd()) {
            throw new IllegalStateException("bytes behind the record");
        }
        ObjectNode found = object(record);
        parseTexts(found);
        return found;
    }

    /** Values of any type are JSON in a text. */
    private static void parseTexts(ObjectNode found) throws Exception {
        if (found.get("metadata") instanceof ObjectNode metadata) {
            for (Map.Entry<String, JsonNode> entry : metadata.properties()) {
                entry.setValue(JSON.readTree(entry.getValue().textValue()));
            }
        }
        if (found.has("article")) {
            found.set("article", JSON.readTree(found.get("article").textValue()));
        }
    }

    private static ObjectNode object(GenericRecord record) {
        ObjectNode object = JSON.createObjectNode();
        for (Schema.Field field : record.getSchema().getFields()) {
            Object value = record.get(field.name());
            if (value instanceof GenericRecord inner) {
                object.set(field.name(), object(inner));
            } else if (value instanceof List<?> list) {
                ArrayNode array = object.putArray(field.name());
                list.forEach(item -> array.add(item instanceof GenericRecord each ? object(each) : JSON.valueToTree(item)));
            } else if (value instanceof ByteBuffer bytes) {
                byte[] content = new byte[bytes.remaining()];
                bytes.duplicate().get(content);
                object.put(field.name(), content);
            } else if (value instanceof CharSequence text) {
                object.put(field.name(), text.toString());
            } else if (value instanceof Map<?, ?> map) {
                ObjectNode texts = object.putObject(field.name());
                map.forEach((name, text) -> texts.put(name.toString(), text.toString()));
            } else if (value != null) {
                object.set(field.name(), JSON.valueToTree(value));
            }
        }
        return object;
    }

    private static Descriptor message(String path) throws Exception {
        try (FileInputStream file = new FileInputStream(path)) {
            FileDescriptorSet set = FileDescriptorSet.parseFrom(file);
            FileDescriptor schema = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
            return schema.getMessageTypes().get(0);
        }
    }

    private static ObjectNode protobuf(ByteBuffer value, Descriptor message) throws Exception {
        if (value.get() != 0) {
            throw new IllegalStateException("not the first message of the schema");
        }
        DynamicMessage record = DynamicMessage.parseFrom(message, rest(value));
        if (!record.getUnknownFields().asMap().isEmpty()) {
            throw new IllegalStateException("fields that the schema does not have");
        }
        ObjectNode found = object(record);
        parseTexts(found);
        return found;
    }

    private static ObjectNode object(Message record) {
        ObjectNode object = JSON.createObjectNode();
        for (FieldDescriptor field : record.getDescriptorForType().getFields()) {
            if (field.isMapField()) {
                texts(object, field, record);
            } else if (field.isRepeated() && record.getRepeatedFieldCount(field) == 0 && OF_TASKS.contains(field.getName())) {
                continue; // Protobuf cannot tell an empty list from none
            } else if (field.isRepeated()) {
                ArrayNode array = object.putArray(field.getName());
                ((List<?>) record.getField(field)).forEach(
                    item -> array.add(item instanceof Message each ? object(each) : JSON.valueToTree(item)));
            } else if (!field.hasPresence() || record.hasField(field)) {
                Object value = record.getField(field);
                object.set(field.getName(), switch (value) {
                    case Message inner -> object(inner);
                    case ByteString bytes -> JSON.valueToTree(bytes.toByteArray());
                    default -> JSON.valueToTree(value);
                });
            }
        }
        return object;
    }

    private static void texts(ObjectNode object, FieldDescriptor field, Message record) {
        if (record.getRepeatedFieldCount(field) > 0) {
            ObjectNode texts = object.putObject(field.getName());
            for (Object item : (List<?>) record.getField(field)) {
                Message entry = (Message) item;
                Descriptor type = entry.getDescriptorForType();
                texts.put((String) entry.getField(type.findFieldByName("key")),
                    (String) entry.getField(type.findFieldByName("value")));
            }
        }
    }
}
