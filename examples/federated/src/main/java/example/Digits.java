package example;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Handwritten digits, and logistic regression. A model has a row for each of 10 digits, with a
 * factor for each of 64 pixels and a summand.
 */
final class Digits {
    static final int NUM_DIGITS = 10;
    static final int NUM_COLUMNS = 65;
    private static final int EPOCHS = 5;
    private static final float LEARNING_RATE = 0.1f;

    private final float[][] pixels;
    private final int[] labels;

    private Digits(List<String> lines) {
        pixels = new float[lines.size()][NUM_COLUMNS];
        labels = new int[lines.size()];
        for (int row = 0; row < labels.length; row++) {
            String[] numbers = lines.get(row).split(",");
            for (int column = 0; column < NUM_COLUMNS - 1; column++) {
                pixels[row][column] = Integer.parseInt(numbers[column]) / 16f;
            }
            pixels[row][NUM_COLUMNS - 1] = 1;
            labels[row] = Integer.parseInt(numbers[NUM_COLUMNS - 1]);
        }
    }

    /** Reads lines of 64 pixels and a label. */
    static Digits read(Path file) throws IOException {
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            return new Digits(lines.lines().toList());
        }
    }

    int size() {
        return labels.length;
    }

    /** Trains a copy of a model. Returns what the training subtracts from the model. */
    float[] train(float[] model) {
        float[] trained = model.clone();
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            for (int row = 0; row < size(); row++) {
                step(trained, pixels[row], labels[row]);
            }
        }
        for (int index = 0; index < model.length; index++) {
            trained[index] = model[index] - trained[index];
        }
        return trained;
    }

    /** Makes a step of gradient descent with a digit. */
    private static void step(float[] model, float[] pixels, int label) {
        double[] odds = new double[NUM_DIGITS];
        double total = 0;
        for (int digit = 0; digit < NUM_DIGITS; digit++) {
            double score = 0;
            for (int column = 0; column < NUM_COLUMNS; column++) {
                score += model[digit * NUM_COLUMNS + column] * pixels[column];
            }
            odds[digit] = Math.exp(score);
            total += odds[digit];
        }
        for (int digit = 0; digit < NUM_DIGITS; digit++) {
            double error = odds[digit] / total - (digit == label ? 1 : 0);
            for (int column = 0; column < NUM_COLUMNS; column++) {
                model[digit * NUM_COLUMNS + column] -=
                        (float) (LEARNING_RATE * error * pixels[column]);
            }
        }
    }
}
