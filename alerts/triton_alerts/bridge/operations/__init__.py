"""Operations on open incidents: actions of people, and work that becomes due."""
