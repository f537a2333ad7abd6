/* A model in a C program: reads one image of floats from a file, prints the largest of the results.
 *
 *     autotune compile model.onnx -o model.so --header model.h --prefix model
 *     cc -O2 classify.c ./model.so -o classify && ./classify image.bin
 *
 * The model has one input `x` and one output `y`; for other names see model.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static float x[MODEL_X_ELEMENTS], y[MODEL_Y_ELEMENTS];

int main(int argc, char **argv) {
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (!file || fread(x, sizeof *x, MODEL_X_ELEMENTS, file) != MODEL_X_ELEMENTS) {
    fprintf(stderr, "usage: classify FILE, of %d floats\n", MODEL_X_ELEMENTS);
    return 2;
  }
  fclose(file);
  model *m = model_create();
  if (!m || model_run(m, x, y)) {
    fprintf(stderr, "%s\n", model_error());
    return 1;
  }
  int best = 0;
  for (int i = 1; i < MODEL_Y_ELEMENTS; i++)
    if (y[i] > y[best]) best = i;
  printf("%d %.9g\n", best, y[best]);
  model_destroy(m);
  return EXIT_SUCCESS;
}
