package example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.zip.GZIPInputStream;

/** A linear classifier of handwritten digits: each class has a weight per pixel, and a bias. */
final class Model {
    static final int NUM_PIXELS = 64;
    static final int NUM_CLASSES = 10;
    private static final int BATCH_SIZE = 32;
    private static final long SEED = 1998;

    /** The pixels of a digit, from 0 to 1, and what it shows. */
    record Digit(float[] pixels, int label) {}

    /** Batches for training, and digits for the test. */
    record Data(List<List<Digit>> batches, List<Digit> tested) {}

    /** Weights and biases, or their gradients. */
    record Parameters(float[] weights, float[] bias) {
        static Parameters zeros() {
            return new Parameters(new float[NUM_PIXELS * NUM_CLASSES], new float[NUM_CLASSES]);
        }
    }

    private Model() {}

    /** Reads the digits. All processes get them in the same order. */
    static Data load() throws IOException {
        List<Digit> digits = new ArrayList<>();
        try (var reader = new BufferedReader(new InputStreamReader(
                new GZIPInputStream(Model.class.getResourceAsStream("/digits.csv.gz")),
                StandardCharsets.UTF_8))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                digits.add(digit(line.split(",")));
            }
        }
        Collections.shuffle(digits, new Random(SEED));
        int numLearned = digits.size() * 4 / 5 / BATCH_SIZE * BATCH_SIZE;
        List<List<Digit>> batches = new ArrayList<>();
        for (int start = 0; start < numLearned; start += BATCH_SIZE) {
            batches.add(digits.subList(start, start + BATCH_SIZE));
        }
        return new Data(batches, digits.subList(numLearned, digits.size()));
    }

    private static Digit digit(String[] numbers) {
        float[] pixels = new float[NUM_PIXELS];
        for (int pixel = 0; pixel < NUM_PIXELS; pixel++) {
            pixels[pixel] = Integer.parseInt(numbers[pixel]) / 16f;
        }
        return new Digit(pixels, Integer.parseInt(numbers[NUM_PIXELS]));
    }

    /** Returns the probability of each class. */
    private static float[] probabilities(Parameters parameters, Digit digit) {
        float[] logits = parameters.bias().clone();
        for (int pixel = 0; pixel < NUM_PIXELS; pixel++) {
            for (int label = 0; label < NUM_CLASSES; label++) {
                logits[label] +=
                        digit.pixels()[pixel] * parameters.weights()[pixel * NUM_CLASSES + label];
            }
        }
        float highest = Float.NEGATIVE_INFINITY;
        for (float logit : logits) {
            highest = Math.max(highest, logit);
        }
        float total = 0;
        for (int label = 0; label < NUM_CLASSES; label++) {
            logits[label] = (float) Math.exp(logits[label] - highest);
            total += logits[label];
        }
        for (int label = 0; label < NUM_CLASSES; label++) {
            logits[label] /= total;
        }
        return logits;
    }

    /** Returns the gradients of the mean loss of a batch. */
    static Parameters gradients(Parameters parameters, List<Digit> batch) {
        Parameters gradients = Parameters.zeros();
        for (Digit digit : batch) {
            float[] errors = probabilities(parameters, digit);
            errors[digit.label()] -= 1;
            for (int label = 0; label < NUM_CLASSES; label++) {
                float error = errors[label] / batch.size();
                gradients.bias()[label] += error;
                for (int pixel = 0; pixel < NUM_PIXELS; pixel++) {
                    gradients.weights()[pixel * NUM_CLASSES + label] +=
                            error * digit.pixels()[pixel];
                }
            }
        }
        return gradients;
    }

    /** Returns the mean of -log p of the true labels. */
    static double loss(Parameters parameters, List<Digit> digits) {
        return digits.stream()
                .mapToDouble(digit -> -Math.log(probabilities(parameters, digit)[digit.label()]))
                .average()
                .orElseThrow();
    }

    /** Returns the share of digits that are read correctly. */
    static double accuracy(Parameters parameters, List<Digit> digits) {
        long read = digits.stream()
                .filter(digit -> label(probabilities(parameters, digit)) == digit.label())
                .count();
        return (double) read / digits.size();
    }

    private static int label(float[] probabilities) {
        int best = 0;
        for (int label = 1; label < probabilities.length; label++) {
            best = probabilities[label] > probabilities[best] ? label : best;
        }
        return best;
    }
}
