// What the operators' resources may hold, as the types made from their Go sources and definitions say; see README.md.
import type { IPrometheusRule } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule';
import type { IPodMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor';
import type { IPrometheusAgent } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1alpha1/PrometheusAgent';
import type { IScaledObject } from '@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject';

export interface Root {
  PrometheusRule: IPrometheusRule;
  PodMonitor: IPodMonitor;
  PrometheusAgent: IPrometheusAgent;
  ScaledObject: IScaledObject;
}
