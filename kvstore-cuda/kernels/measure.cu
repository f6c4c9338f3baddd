// What layer-wise optimizers measure before their steps. Each formula has a PTX file of its own.
#include "measure.h"

#define KV_MEASURE_FORMULA(Step) KV_MEASURE(Step, Step##Norms)

KV_LAYER_FORMULAS(KV_MEASURE_FORMULA)
