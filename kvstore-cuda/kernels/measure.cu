// The norms that layer-wise optimizers need before an update. Each formula has its own PTX file.
#include "measure.h"

#define KV_MEASURE_FORMULA(Step) KV_MEASURE(Step, Step##Norms)

KV_LAYER_FORMULAS(KV_MEASURE_FORMULA)
