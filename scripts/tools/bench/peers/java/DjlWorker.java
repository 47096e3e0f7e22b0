import ai.djl.Device;
import ai.djl.huggingface.tokenizers.Encoding;
import ai.djl.huggingface.tokenizers.HuggingFaceTokenizer;
import ai.djl.huggingface.tokenizers.jni.CharSpan;
import ai.djl.inference.Predictor;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.repository.zoo.Criteria;
import ai.djl.repository.zoo.ZooModel;
import ai.djl.translate.Batchifier;
import ai.djl.translate.Translator;
import ai.djl.translate.TranslatorContext;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Peer (e): a worker on the JVM, with DJL's tokenizer and DJL's engine for ONNX Runtime. Arguments: the model's folder,
 * tokens of a window, tokens that windows share, {@code cpu} or {@code cuda:N}. Orders and answers as in {@code transfer.py};
 * options are {@code callers}, {@code threads} and {@code windows_per_run}.
 */
public final class DjlWorker {
    private static final ObjectMapper JSON =
            new ObjectMapper().setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE);
    private static final int POLL_RECORDS = 64; // as in transfer.py
    private static final Duration POLL = Duration.ofMillis(100);
    private static final String SEPARATOR = "\n\n";
    private static final List<String> METADATA = List.of("language", "source", "url", "published_at");

    record Route(String bootstrapServers, String groupId, String inputTopic, String outputTopic) {}

    record Options(int callers, int threads, Integer windowsPerRun) {}

    record Order(Route route, Options options, int articles) {}

    record Transferred(int articles, int transactions, @JsonProperty("working_s") double workingS) {}

    record Card(String name, String digest, String precision) {}

    record Coverage(int tokens, int windows, boolean truncated) {}

    record Entity(String field, int start, int end, String text, String label, double score) {}

    /** Label and score of each token of a window. */
    record Tagged(int[] labels, float[] scores) {}

    /** An entity in the whole text; `start` and `end` count code points. It grows by words. */
    private static final class Span {
        final String kind;
        final int start;
        int end;
        int words;
        double scores;

        Span(String kind, int start) {
            this.kind = kind;
            this.start = start;
        }

        void add(int newEnd, double score) {
            end = newEnd;
            words += 1;
            scores += score;
        }
    }

    /** Pads a batch of windows, and reads the most likely label of each token from the logits. */
    private static final class Labelling implements Translator<Encoding[], Tagged[]> {
        @Override
        public Batchifier getBatchifier() {
            return null; // an input is a batch already
        }

        @Override
        public NDList processInput(TranslatorContext context, Encoding[] windows) {
            int longest = Arrays.stream(windows).mapToInt(window -> window.getIds().length).max().orElseThrow();
            long[][] ids = new long[windows.length][];
            long[][] mask = new long[windows.length][];
            for (int row = 0; row < windows.length; row++) {
                ids[row] = Arrays.copyOf(windows[row].getIds(), longest);
                mask[row] = Arrays.copyOf(windows[row].getAttentionMask(), longest);
            }
            NDManager manager = context.getNDManager();
            NDList inputs = new NDList();
            for (String name : context.getBlock().describeInput().keys()) {
                NDArray array = switch (name) {
                    case "input_ids" -> manager.create(ids);
                    case "attention_mask" -> manager.create(mask);
                    default -> manager.create(new long[windows.length][longest]);
                };
                array.setName(name);
                inputs.add(array);
            }
            context.setAttachment("windows", windows);
            return inputs;
        }

        @Override
        public Tagged[] processOutput(TranslatorContext context, NDList outputs) {
            Encoding[] windows = (Encoding[]) context.getAttachment("windows");
            long[] shape = outputs.get(0).getShape().getShape();
            int length = (int) shape[1];
            int labels = (int) shape[2];
            float[] logits = outputs.get(0).toFloatArray();
            Tagged[] tagged = new Tagged[windows.length];
            for (int row = 0; row < windows.length; row++) {
                tagged[row] = tag(logits, row * length * labels, windows[row].getIds().length, labels);
            }
            return tagged;
        }

        private static Tagged tag(float[] logits, int from, int length, int labels) {
            Tagged tagged = new Tagged(new int[length], new float[length]);
            for (int token = 0; token < length; token++) {
                int first = from + token * labels;
                int best = 0;
                for (int label = 1; label < labels; label++) {
                    best = logits[first + label] > logits[first + best] ? label : best;
                }
                double odds = 0;
                for (int label = 0; label < labels; label++) {
                    odds += Math.exp(logits[first + label] - logits[first + best]);
                }
                tagged.labels[token] = best;
                tagged.scores[token] = (float) (1 / odds);
            }
            return tagged;
        }
    }

    /** The model with a number of threads per run, for each thread of the pool that calls it. */
    private record Engine(ThreadLocal<Predictor<Encoding[], Tagged[]>> predictors, ExecutorService callers) {
        List<Tagged[]> run(List<Encoding[]> batches) throws Exception {
            List<Future<Tagged[]>> answers = new ArrayList<>();
            for (Encoding[] batch : batches) {
                answers.add(callers.submit(() -> predictors.get().predict(batch)));
            }
            List<Tagged[]> tagged = new ArrayList<>();
            for (Future<Tagged[]> answer : answers) {
                tagged.add(answer.get());
            }
            return tagged;
        }
    }

    private final Path folder;
    private final int overlapTokens;
    private final Device device;
    private final HuggingFaceTokenizer tokenizer;
    private final String[] labels;
    private final Card card;
    private final Map<List<Integer>, Engine> engines = new HashMap<>();

    private DjlWorker(Path folder, int windowTokens, int overlapTokens, Device device) throws Exception {
        this.folder = folder;
        this.overlapTokens = overlapTokens;
        this.device = device;
        tokenizer = HuggingFaceTokenizer.builder()
                .optTokenizerPath(folder.resolve("tokenizer.json"))
                .optMaxLength(windowTokens)
                .optTruncation(true)
                .optStride(overlapTokens)
                .optWithOverflowingTokens(true)
                .optPadding(false)
                .build();
        JsonNode names = JSON.readTree(folder.resolve("config.json").toFile()).get("id2label");
        labels = new String[names.size()];
        names.properties().forEach(each -> labels[Integer.parseInt(each.getKey())] = each.getValue().asText());
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(folder.resolve("model.onnx")));
        card = new Card(folder.getFileName().toString(), HexFormat.of().formatHex(digest), "fp32");
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what libraries print is no answer
        String name = arguments[3];
        Device device = name.equals("cpu") ? Device.cpu() : Device.gpu(Integer.parseInt(name.substring(5)));
        int windowTokens = Integer.parseInt(arguments[1]);
        DjlWorker worker =
                new DjlWorker(Path.of(arguments[0]), windowTokens, Integer.parseInt(arguments[2]), device);
        try (var orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                answers.println(JSON.writeValueAsString(worker.transfer(JSON.readValue(line, Order.class))));
            }
        }
        System.exit(0); // the pools' threads still wait for work
    }

    private Engine engine(Options options) throws Exception {
        List<Integer> key = List.of(options.threads(), options.callers());
        if (!engines.containsKey(key)) {
            ZooModel<Encoding[], Tagged[]> model = Criteria.builder()
                    .setTypes(Encoding[].class, Tagged[].class)
                    .optModelPath(folder)
                    .optModelName("model")
                    .optEngine("OnnxRuntime")
                    .optDevice(device)
                    .optOption("intraOpNumThreads", String.valueOf(options.threads()))
                    .optOption("interOpNumThreads", "1")
                    .optTranslator(new Labelling())
                    .build()
                    .loadModel();
            ExecutorService callers = Executors.newFixedThreadPool(options.callers());
            engines.put(key, new Engine(ThreadLocal.withInitial(model::newPredictor), callers));
        }
        return engines.get(key);
    }

    // ---- Kafka to Kafka

    /** Reads, enriches and writes articles exactly once. A failure ends the process. */
    private Transferred transfer(Order order) throws Exception {
        Engine engine = engine(order.options());
        int done = 0;
        int transactions = 0;
        long firstReadNs = 0;
        long lastCommitNs = 0;
        try (var consumer = consumer(order.route()); var producer = producer(order.route())) {
            producer.initTransactions();
            consumer.subscribe(List.of(order.route().inputTopic()));
            while (done < order.articles()) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
                if (polled.isEmpty()) {
                    continue;
                }
                firstReadNs = firstReadNs == 0 ? System.nanoTime() : firstReadNs;
                List<ConsumerRecord<byte[], byte[]>> messages = new ArrayList<>();
                polled.forEach(messages::add);
                List<byte[]> records = enrich(engine, order.options().windowsPerRun(), messages);
                producer.beginTransaction();
                for (int index = 0; index < records.size(); index++) {
                    byte[] key = messages.get(index).key();
                    producer.send(new ProducerRecord<>(order.route().outputTopic(), key, records.get(index)));
                }
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                polled.partitions().forEach(
                        each -> positions.put(each, new OffsetAndMetadata(consumer.position(each))));
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                producer.commitTransaction();
                lastCommitNs = System.nanoTime();
                done += messages.size();
                transactions += 1;
            }
        }
        return new Transferred(done, transactions, (lastCommitNs - firstReadNs) / 1e9);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Route route) {
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", route.bootstrapServers(),
                "group.id", route.groupId(),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "isolation.level", "read_committed",
                "max.poll.records", POLL_RECORDS);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static KafkaProducer<byte[], byte[]> producer(Route route) {
        Map<String, Object> properties = Map.of(
                "bootstrap.servers", route.bootstrapServers(),
                "transactional.id", route.groupId() + "-0",
                "compression.type", "lz4",
                "linger.ms", 0);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    // ---- articles to records

    private List<byte[]> enrich(Engine engine, Integer windowsPerRun, List<ConsumerRecord<byte[], byte[]>> messages)
            throws Exception {
        List<JsonNode> articles = new ArrayList<>();
        List<String> texts = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> message : messages) {
            JsonNode article = JSON.readTree(message.value());
            articles.add(article);
            texts.add(title(article) + SEPARATOR + article.get("body").asText());
        }
        List<List<Encoding>> windows = new ArrayList<>();
        for (Encoding first : tokenizer.batchEncode(texts)) {
            List<Encoding> own = new ArrayList<>(List.of(first));
            own.addAll(Arrays.asList(first.getOverflowing()));
            windows.add(own);
        }
        List<Tagged> tagged = new ArrayList<>();
        engine.run(batches(windows, windowsPerRun)).forEach(each -> tagged.addAll(Arrays.asList(each)));
        List<byte[]> records = new ArrayList<>();
        int from = 0;
        for (int index = 0; index < articles.size(); index++) {
            List<Encoding> own = windows.get(index);
            List<Tagged> answers = tagged.subList(from, from += own.size());
            records.add(record(articles.get(index), spans(own, answers), coverage(own)));
        }
        return records;
    }

    /** Runs of so many windows in order; null: one run per article. */
    private static List<Encoding[]> batches(List<List<Encoding>> windows, Integer windowsPerRun) {
        if (windowsPerRun == null) {
            return windows.stream().map(each -> each.toArray(Encoding[]::new)).toList();
        }
        List<Encoding> all = windows.stream().flatMap(List::stream).toList();
        List<Encoding[]> batches = new ArrayList<>();
        for (int start = 0; start < all.size(); start += windowsPerRun) {
            int end = Math.min(start + windowsPerRun, all.size());
            batches.add(all.subList(start, end).toArray(Encoding[]::new));
        }
        return batches;
    }

    /** A word's first token decides its label, and of each overlap each window decides the half away from its edge. */
    private List<Span> spans(List<Encoding> windows, List<Tagged> tagged) {
        List<Span> spans = new ArrayList<>();
        long word = -1;
        Span open = null; // the entity that the latest word is part of
        for (int index = 0; index < windows.size(); index++) {
            Encoding window = windows.get(index);
            int half = overlapTokens / 2;
            int first = index == 0 ? 1 : 1 + half;
            int last = window.getIds().length - 1 - (index < windows.size() - 1 ? overlapTokens - half : 0);
            for (int token = first; token < last; token++) {
                CharSpan place = window.getCharTokenSpans()[token];
                if (window.getWordIds()[token] == word) {
                    if (open != null) {
                        open.end = place.getEnd();
                    }
                    continue;
                }
                word = window.getWordIds()[token];
                String label = labels[tagged.get(index).labels()[token]];
                if (label.equals("O")) {
                    open = null;
                    continue;
                }
                String kind = label.substring(2);
                if (open == null || !label.startsWith("I-") || !open.kind.equals(kind)) {
                    open = new Span(kind, place.getStart());
                    spans.add(open);
                }
                open.add(place.getEnd(), tagged.get(index).scores()[token]);
            }
        }
        return spans;
    }

    private Coverage coverage(List<Encoding> windows) {
        int tokens = windows.stream().mapToInt(window -> window.getIds().length - 2).sum();
        return new Coverage(tokens - overlapTokens * (windows.size() - 1), windows.size(), false);
    }

    private byte[] record(JsonNode article, List<Span> spans, Coverage coverage) throws Exception {
        int[] title = title(article).codePoints().toArray();
        int[] body = article.get("body").asText().codePoints().toArray();
        List<Entity> entities = spans.stream().map(span -> entity(span, title, body)).toList();
        ObjectNode record = JSON.createObjectNode().put("schema_version", 1).put("id", article.get("id").asText());
        METADATA.stream().filter(article::hasNonNull).forEach(name -> record.set(name, article.get(name)));
        record.set("entities", JSON.valueToTree(entities));
        record.set("model", JSON.valueToTree(card));
        record.set("coverage", JSON.valueToTree(coverage));
        return JSON.writeValueAsBytes(record);
    }

    /** Converts a span to an entity of the field in which it begins. */
    private static Entity entity(Span span, int[] title, int[] body) {
        boolean inTitle = span.start < title.length;
        int[] text = inTitle ? title : body;
        int shift = inTitle ? 0 : title.length + SEPARATOR.length();
        int start = span.start - shift;
        int end = Math.min(span.end - shift, text.length);
        double score = Math.round(span.scores / span.words * 1e4) / 1e4;
        return new Entity(inTitle ? "title" : "body", start, end, new String(text, start, end - start), span.kind, score);
    }

    private static String title(JsonNode article) {
        return article.hasNonNull("title") ? article.get("title").asText() : "";
    }
}
