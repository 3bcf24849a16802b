// What the classic dashboard model may hold, as Grafana's own types say; see README.md beside this file.
import type { Dashboard } from '@grafana/schema';

export interface Root {
  dashboard: Dashboard;
}
